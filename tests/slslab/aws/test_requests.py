"""What a request's body must be, and what AWS's model of its operation says of it."""

import pytest

from slslab.aws.errors import ServiceError
from slslab.aws.requests import members


def test_members_without_a_value_are_left_out_and_violations_are_lines() -> None:
    assert members("lambda", "TagResource", b'{"Resource": "arn", "Tags": {}, "More": null}') == (
        {"Resource": "arn", "Tags": {}},
        [],
    )
    _, violations = members("stepfunctions", "StartExecution", b'{"stateMachineArn": 1, "name": ""}')
    assert [line.partition(":")[0] for line in violations] == [
        "Invalid type for parameter stateMachineArn, value",
        "Invalid length for parameter name, value",
    ]


@pytest.mark.parametrize("body", [b"{", b"[1]", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ServiceError, match="request body") as refused:
        members("lambda", "TagResource", body)
    assert (refused.value.status, refused.value.error_type) == (400, "SerializationException")

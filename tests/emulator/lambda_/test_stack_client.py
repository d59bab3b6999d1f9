"""What the emulator reaches of the stack, by the variables that name it; packages and failures in S3 have tests of
their own in test_functions.py and test_invocation.py."""

import logging

import pytest

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring
from slslab.errors import RequestError
from slslab.lambda_.stack_client import StackClient

HERE = "http://127.0.0.1:1"

OWNER = Keyring().owner


def test_variables_name_the_services() -> None:
    stack = StackClient(HERE, "http://emulator:1", {"AWS_ENDPOINT_URL_S3": "http://s3", "OTHER": "1"}, OWNER)
    assert stack.endpoints == {"lambda": HERE, "s3": "http://s3"}
    stack.add_variables({"AWS_ENDPOINT_URL_SFN": "http://states"})
    assert stack.endpoints["states"] == "http://states"
    assert stack.variables["AWS_ENDPOINT_URL_LAMBDA"] == "http://emulator:1"
    assert stack.variables.keys() >= {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_SFN", "OTHER"}
    client = stack.client("stepfunctions")
    assert client.meta.endpoint_url == "http://states"
    client.close()


def test_what_no_variable_names_is_told(caplog: pytest.LogCaptureFixture) -> None:
    stack = StackClient(HERE, HERE, {}, OWNER)
    with pytest.raises(RequestError, match="no endpoint for s3, only for lambda"):
        stack.client("s3")
    with pytest.raises(ServiceError, match="The bucket code cannot be read: this emulator has no S3"):
        stack.fetch("code", "app.zip", None, 1)
    with caplog.at_level(logging.ERROR, "slslab.lambda_.stack_client"):
        stack.store("failures", "key", b"{}")
    assert "the destination bucket failures cannot be written" in caplog.text

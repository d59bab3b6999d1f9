"""Operations of the trace: the table, the documentation and the classes derived from it agree."""

import re
from pathlib import Path

import pytest

from slslab_workers.trace.operations import BESIDE, BILLED, KEYED, MOVES, OPERATIONS, PROTOCOL, billed_requests, moves

PAGE = Path(__file__).parents[3] / "docs" / "trace.md"


def test_the_documentation_names_every_operation() -> None:
    page = PAGE.read_text(encoding="utf-8")
    paragraph = page[page.index("Operations of workers:") : page.index("## Causes")]
    named = set(re.findall(r"`([a-z_.]+)`", paragraph)) - {"worker", "reads", "resource", "bytes", "failed"}
    assert named == OPERATIONS.keys()


def test_what_is_derived() -> None:
    puts, gets, deletes = ({f"{channel}.{name}" for channel in KEYED} for name in ("put", "get", "delete"))
    assert {op for op in MOVES if moves(op, "in")} == {*puts, "tensor.set", "parameter.push", "peer.allreduce"}
    assert {op for op in MOVES if moves(op, "out")} == {
        *gets, "object.list", "tensor.get", "tensor.script", "parameter.pull", "peer.allreduce",
    }  # fmt: skip
    assert set(BESIDE) == {
        "transition", "tensor.script.run", "parameter.deserialise", "parameter.merge", "parameter.serialise",
    }  # fmt: skip
    s3 = {"object.put", "object.list", "object.get", "object.delete"}
    sqs = {"sqs.request", "sqs.fifo", "sqs.poll", "sqs.fifo_poll"}
    assert BILLED.keys() == {*s3, *sqs, "dynamodb.put", "dynamodb.get", "dynamodb.delete"}
    assert set(PROTOCOL) - BILLED.keys() == (puts | gets | deletes) - BILLED.keys() | {
        "tensor.set", "tensor.get", "tensor.script", "tensor.delete", "queue.publish", "queue.deliver", "transition",
        "parameter.push", "parameter.pull", "peer.allreduce",
    }  # fmt: skip
    assert all(
        op.partition(".")[0] == meaning.channel for op, meaning in OPERATIONS.items() if meaning.channel and "." in op
    )


@pytest.mark.parametrize(
    ("op", "requests", "size", "billed"),
    [
        ("object.put", 3, 5_000, 3),
        ("dynamodb.put", 1, 0, 1),
        ("dynamodb.put", 1, 1024, 1),
        ("dynamodb.put", 1, 1025, 2),
        ("dynamodb.put", 4, 4 * 1025, 8),
        ("dynamodb.get", 1, 0, 1),
        ("dynamodb.get", 1, 246_824, 61),
        ("dynamodb.delete", 2, 2 * 246_824, 2 * 242),
        ("dynamodb.get", 0, 0, 0),
    ],
)
def test_dynamodb_bills_a_request_by_its_size(op: str, requests: int, size: int, billed: int) -> None:
    assert billed_requests(op, requests, size) == billed

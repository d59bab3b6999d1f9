"""Operations of the trace: the table, the documentation and the classes derived from it agree."""

import re
from pathlib import Path

from slslab_workers.trace.operations import BESIDE, BILLED, MOVES, OPERATIONS, PROTOCOL

PAGE = Path(__file__).parents[3] / "docs" / "trace.md"


def test_the_documentation_names_every_operation() -> None:
    page = PAGE.read_text(encoding="utf-8")
    paragraph = page[page.index("Operations of workers:") : page.index("Causes are resolved")]
    named = set(re.findall(r"`([a-z.]+)`", paragraph)) - {"worker", "reads", "bytes", "failed"}
    assert named == OPERATIONS.keys()


def test_what_is_derived() -> None:
    assert {op for op, direction in MOVES.items() if direction == "in"} == {"object.put", "tensor.set"}
    assert MOVES.keys() == {"object.put", "object.get", "object.list", "tensor.set", "tensor.get", "tensor.script"}
    assert BESIDE == ("transition", "tensor.script.run")
    assert BILLED.keys() == {"object.put", "object.list", "object.get", "object.delete"}
    assert set(PROTOCOL) - BILLED.keys() == {
        "tensor.set", "tensor.get", "tensor.script", "tensor.delete", "queue.publish", "queue.deliver", "transition",
    }  # fmt: skip
    assert all(
        op.partition(".")[0] == meaning.channel for op, meaning in OPERATIONS.items() if meaning.channel and "." in op
    )

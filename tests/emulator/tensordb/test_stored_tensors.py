"""A script that RedisAI would let spoil stored tensors, or point to freed memory, is refused."""

import numpy as np
import pytest
from tests.emulator.tensordb.wire import AVERAGE, Wire, encode, error, info

from slslab.tensordb.replies import CommandError
from slslab.tensordb.scripts import compile_script

pytestmark = pytest.mark.server

HEAD = "def f(tensors: List[Tensor], keys: List[str], args: List[str]):\n"
# Of those that change an input: which way round they try it.
CHANGING = [
    "return tensors[0].add_(1)",
    "tensors[0].add_(1)\n    return tensors[0].clone()",
    "tensors[0][1:3] = 0.5\n    return tensors[0] * 1",
    "tensors[0].view(-1)[0] += 1\n    return tensors[0] * 1",
    "acc = tensors[0]\n    for t in tensors:\n        acc += t\n    return acc * 1",
    "acc = tensors[0]\n    if len(args) > 7:\n        acc = acc.clone()\n    acc.mul_(2)\n    return acc * 1",
    "for t in tensors:\n        t.zero_()\n    return tensors[0] * 1",
    "y = torch.zeros(4)\n    for i in range(2):\n        x, y = y, tensors[0]\n        x.add_(1)\n    return y * 1",
    "torch._foreach_add_(tensors, 1.0)\n    return tensors[0] * 1",
    "torch.add(tensors[0], tensors[0], out=tensors[0])\n    return tensors[0] * 1",
    "a, b = tensors[0].clone(), tensors[0]\n    b.sub_(a)\n    return a",
    "t: Optional[Tensor] = tensors[0]\n    if t is not None:\n        t.add_(1)\n    return tensors[0] * 1",
    "return helper(tensors[0]) * 1\ndef helper(x: Tensor):\n    return x.add_(1)",
]
RETURNING = [
    "return tensors[0]",
    "return tensors[0][1:]",
    "return [tensors[0] * 2, tensors[0].view(2, 2)][1]",
    "return tensors[0].to(torch.float32)",
]
# Allowed; `True` if they may run on the stored tensors themselves.
ALLOWED = [
    ("acc = tensors[0].clone()\n    for t in tensors:\n        acc += t\n    return acc", True),
    ("acc = torch.zeros_like(tensors[0])\n    for t in tensors:\n        acc.add_(t)\n    return acc", True),
    ("a = tensors[0] * 1\n    a[1:] = 3\n    a.view(-1)[0] += 1\n    return a", True),
    ("r: List[Tensor] = []\n    for t in tensors:\n        r.append(t * 2)\n    return r[0] + 1", True),
    ("tensors.clear()\n    return torch.ones(4)", True),
    ("a = tensors[0]\n    if len(args) == 0:\n        a = a.clone()\n    a.mul_(2)\n    return a", False),
    ("r = [t * 2 for t in tensors]\n    torch._foreach_add_(r, 1.0)\n    return r[0]", False),
]
DATA = np.arange(4, dtype="<f4").tobytes()


def store(wire: Wire, body: str) -> None:
    assert wire("AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 1, "f", "SOURCE", f"{HEAD}    {body}\n") == "OK"
    assert wire("AI.TENSORSET", "t", "FLOAT", 4, "BLOB", DATA) == "OK"


@pytest.mark.parametrize("body", CHANGING)
def test_a_script_that_changes_its_input_is_refused_and_changes_nothing(wire: Wire, body: str) -> None:
    store(wire, body)
    message = error(wire, "AI.SCRIPTEXECUTE", "s", "f", "INPUTS", 2, "t", "t", "OUTPUTS", 1, "o")
    assert message.startswith("ERR the script changed its input tensors[")
    assert wire("AI.TENSORGET", "t", "BLOB") == DATA
    assert wire("EXISTS", "o") == 0


@pytest.mark.parametrize("body", RETURNING)
def test_a_script_that_returns_its_input_or_a_view_of_it_is_refused(wire: Wire, body: str) -> None:
    store(wire, body)
    message = error(wire, "AI.SCRIPTEXECUTE", "s", "f", "INPUTS", 1, "t", "OUTPUTS", 1, "o")
    assert message.startswith("ERR the script's output 0 is its input tensors[0] or a view of it")
    assert wire("EXISTS", "o") == 0


def test_writing_through_data_which_torch_does_not_count_changes_nothing(wire: Wire) -> None:
    store(wire, "tensors[0].data.add_(1)\n    return tensors[0] * 1")
    wire.send(encode("AI.SCRIPTEXECUTE", "s", "f", "INPUTS", 1, "t", "OUTPUTS", 1, "o"))
    wire.read()
    assert wire("AI.TENSORGET", "t", "BLOB") == DATA


@pytest.mark.parametrize(("body", "direct"), ALLOWED)
def test_a_script_that_writes_to_its_own_tensors_is_allowed(wire: Wire, body: str, direct: bool) -> None:
    store(wire, body)
    assert wire("AI.SCRIPTEXECUTE", "s", "f", "INPUTS", 2, "t", "t", "OUTPUTS", 1, "o") == "OK"
    assert wire("AI.TENSORGET", "t", "BLOB") == DATA
    source = f"{HEAD}    {body}\n".encode()
    assert (compile_script(source, [b"f"], b"").direct == {b"f"}) is direct


def test_the_scripts_of_the_workers_run_on_the_stored_tensors() -> None:
    assert len(compile_script(AVERAGE.encode(), [b"average", b"sgd"], b"").direct) == 2


def test_a_script_that_updates_running_statistics_does_not_run_on_the_stored_tensors() -> None:
    """The schema of batch_norm doesn't say that it writes."""
    call = "torch.batch_norm(torch.ones(2, 4), None, None, tensors[0], tensors[0], True, 0.1, 1.0, False)"
    assert not compile_script(f"{HEAD}    return {call}\n".encode(), [b"f"], b"").direct


def test_a_small_part_does_not_keep_the_whole(wire: Wire) -> None:
    store(wire, "big = torch.ones(1000000)\n    return [big[:2], big[2:4].t(), torch.ones(3, 2).t()]")
    assert wire("AI.SCRIPTEXECUTE", "s", "f", "INPUTS", 1, "t", "OUTPUTS", 3, "o", "p", "q") == "OK"
    assert wire("AI.TENSORGET", "o", "VALUES") == [b"1", b"1"]
    assert wire("AI.TENSORGET", "q", "META")[3] == [2, 3]
    assert info(wire, "used_memory") < 10_000


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 1", "must return tensors"),
        ("return torch.ones(2, dtype=torch.complex64)", "torch.complex64"),
        ("return torch.ones(2, dtype=torch.bfloat16)", "torch.bfloat16"),
        ("return tensors[0].to_sparse()", "which RedisAI does not know"),
        ("return tensors[9]", "index out of range"),
        ("assert False, 'never'\n    return tensors[0] + 1", "never"),
        ("return tensors[0] + float(args[0])", ""),
    ],
)
def test_a_script_that_fails_is_an_error_of_one_line(wire: Wire, body: str, words: str) -> None:
    store(wire, body)
    message = error(wire, "AI.SCRIPTEXECUTE", "s", "f", "INPUTS", 1, "t", "OUTPUTS", 1, "o")
    assert words in message
    assert wire("PING") == "PONG"


def test_an_entry_point_must_have_the_signature() -> None:
    with pytest.raises(CommandError, match="the signature of an entry point is"):
        compile_script(b"def f(x: Tensor):\n    return x\n", [b"f"], b"")
    with pytest.raises(CommandError, match="Function g does not exist"):
        compile_script(b"def f(x: Tensor):\n    return x\n", [b"g"], b"")
    with pytest.raises(CommandError, match="codec"):
        compile_script(b"\xff", [b"g"], b"")


def test_a_type_that_torch_has_not_cannot_enter(wire: Wire) -> None:
    store(wire, "return tensors[0] + 1")
    wire("AI.TENSORSET", "u", "UINT16", 2, "VALUES", 1, 65535)
    assert wire("AI.TENSORGET", "u", "VALUES") == [1, 65535]
    assert "UINT16" in error(wire, "AI.SCRIPTEXECUTE", "s", "f", "INPUTS", 1, "u", "OUTPUTS", 1, "o")


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("-", ""), ("", " + 1"), ("", ".abs()")])
def test_a_script_that_is_too_deep_for_its_compiler_is_refused(wire: Wire, before: str, after: str) -> None:
    """It would end the process: the compiler goes down by recursion, until no stack is left."""
    store(wire, f"return {before * 150}(tensors[0] * 1){after * 150}")
    deep = f"{HEAD}    return {before * 10_000}(tensors[0] * 1){after * 10_000}\n"
    refused = error(wire, "AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 1, "f", "SOURCE", deep)
    assert refused == "ERR slslab takes scripts of at most 500 levels"

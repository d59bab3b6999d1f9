# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement RedisAI's commands: AI.TENSORSET, AI.SCRIPTEXECUTE, AI.DAGEXECUTE, …

Tensors and scripts are immutable, so the store is locked only while a key is looked up or set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeVar

from slslab.tensordb import scripts
from slslab.tensordb.replies import OK, Blob, CommandError, Reply, Simple
from slslab.tensordb.scripts import Script
from slslab.tensordb.session import SYNTAX, Session, command, whole, wrong_arity
from slslab.tensordb.store import TYPE_NAMES
from slslab.tensordb.tensors import INVALID_LENGTH, Tensor, parse_header, parse_tensor

NO_TENSOR = "ERR tensor key is empty or in a different shard"
# RedisAI's commands that tensordb doesn't have, with what to use instead.
CONTAINER = "run RedisAI's container (`slslab up --stack compose`)"
SCRIPTS = "use AI.SCRIPTSTORE and AI.SCRIPTEXECUTE"
DAG = "use AI.DAGEXECUTE"
UNSUPPORTED = {
    **dict.fromkeys(("modelset", "modelstore", "modelget", "modeldel", "modelrun", "modelexecute"), CONTAINER),
    **dict.fromkeys(("scriptset", "scriptrun"), SCRIPTS),
    **dict.fromkeys(("dagrun", "dagrun_ro", "dagexecute_ro"), DAG),
    "config": "it has no backends or settings to load; leave this out",
}
NO_SCRIPT = "ERR script key is empty or in a different shard"
DAG_COMMANDS = (b"AI.TENSORSET", b"AI.TENSORGET", b"AI.SCRIPTEXECUTE")

TYPE_NAMES |= {Tensor: "AI_TENSOR", Script: "AI_SCRIPT"}

V = TypeVar("V", Tensor, Script)


def _stored(session: Session, key: bytes, kind: type[V], complaint: str) -> V:
    with session.store as store:
        value: V | None = store.value(key, kind)
    if value is None:
        raise CommandError(complaint)
    return value


def _load(session: Session, key: bytes) -> Tensor:
    return _stored(session, key, Tensor, NO_TENSOR)


def _store(session: Session, tensors: dict[bytes, Tensor]) -> None:
    with session.store as store:
        store.require(sum(tensor.bytes for tensor in tensors.values()))
        for key, tensor in tensors.items():
            store.put(key, tensor, tensor.bytes)


def _script(session: Session, key: bytes) -> Script:
    return _stored(session, key, Script, NO_SCRIPT)


def _check_length(arguments: list[Blob], count: int, length: int) -> None:
    if len(arguments) == count - 1 >= 4:
        header = parse_header(arguments[1:])
        if header.format == "BLOB" and header.rest == len(arguments) - 1 and header.bytes != length:
            raise CommandError(INVALID_LENGTH)


@command("ai.tensorset", -4, grows=True, raw=True, unlocked=True, precheck=_check_length)
def _tensorset(session: Session, args: list[Blob]) -> Reply:
    _store(session, {bytes(args[0]): parse_tensor(args)})
    return OK


@command("ai.tensorget", -2, unlocked=True)
def _tensorget(session: Session, args: list[bytes]) -> Reply:
    return _tensor_reply(_load(session, args[0]), args[1:])


def _tensor_reply(tensor: Tensor, words: list[bytes]) -> Reply:
    forms = sorted(word.upper() for word in words)
    if forms not in ([], [b"BLOB"], [b"META"], [b"VALUES"], [b"BLOB", b"META"], [b"META", b"VALUES"]):
        raise CommandError("ERR unsupported data format")
    meta: list[Reply] = tensor.meta() if b"META" in forms or not forms else []
    if b"VALUES" in forms:
        return [*meta, "values", tensor.values()] if meta else tensor.values()
    if b"BLOB" in forms or not forms:
        return [*meta, "blob", tensor.blob()] if meta else tensor.blob()
    return meta


@command("ai.scriptstore", -8, grows=True, unlocked=True)
def _scriptstore(session: Session, args: list[bytes]) -> Reply:
    key, device, *rest = args
    if device.upper().partition(b":")[0] != b"CPU":
        raise CommandError("ERR Invalid DEVICE: tensordb runs scripts on CPU")
    tag = b""
    if rest[0].upper() == b"TAG":
        tag, rest = rest[1], rest[2:]
    if len(rest) < 2 or rest[0].upper() != b"ENTRY_POINTS":
        raise CommandError("ERR Insufficient arguments, missing script entry points")
    entry_points, rest = _counted(rest[1:], "entry points")
    if not entry_points or len(rest) != 2 or rest[0].upper() != b"SOURCE":
        raise CommandError("ERR Insufficient arguments, missing script SOURCE" if entry_points else SYNTAX)
    script = scripts.compile_script(rest[1], entry_points, tag, session.context.scripts)
    with session.store as store:
        store.put(key, script, len(script.source))
    return OK


@command("ai.scriptget", -2)
def _scriptget(session: Session, args: list[bytes]) -> Reply:
    parts = {word.upper() for word in args[1:]} or {b"META", b"SOURCE"}
    if not parts <= {b"META", b"SOURCE"}:
        raise CommandError(SYNTAX)
    script = _script(session, args[0])
    if parts == {b"SOURCE"}:
        return script.source
    meta: list[Reply] = ["device", "CPU", "tag", script.tag, "Entry Points", list(script.entry_points)]
    return [*meta, "source", script.source] if b"SOURCE" in parts else meta


@command("ai.scriptdel", 2)
def _scriptdel(session: Session, args: list[bytes]) -> Reply:
    _script(session, args[0])
    session.store.drop(args[0])
    return OK


def _counted(args: Sequence[bytes], what: str) -> tuple[list[bytes], list[bytes]]:
    """Return the arguments a1 to an of `n a1 … an`, and the remaining ones."""
    try:
        count = whole(args[0]) if args else -1
    except CommandError:
        count = -1
    if count < 0 or count > len(args) - 1:
        raise CommandError(f"ERR Invalid argument for the number of {what}")
    return list(args[1 : count + 1]), list(args[count + 1 :])


@dataclass(frozen=True)
class Execution:
    """The arguments of AI.SCRIPTEXECUTE; `timeout_s` limits the wait for earlier executions (None: no limit)."""

    script: bytes
    function: bytes
    keys: list[bytes]
    inputs: list[bytes]
    arguments: list[bytes]
    outputs: list[bytes]
    timeout_s: float | None


def parse_execution(args: Sequence[bytes]) -> Execution:
    """Parse the arguments of AI.SCRIPTEXECUTE; CommandError if they aren't valid."""
    sections: dict[bytes, list[bytes]] = {}
    timeout = None
    rest = list(args[2:])
    while rest:
        word = rest[0].upper()
        if not sections and word not in (b"KEYS", b"INPUTS"):
            raise CommandError("ERR KEYS or INPUTS scope must be provided first for AI.SCRIPTEXECUTE command")
        if word == b"TIMEOUT" and len(rest) == 2:
            timeout, rest = _timeout(rest[1]), []
        elif word in (b"KEYS", b"INPUTS", b"ARGS", b"OUTPUTS") and word not in sections:
            sections[word], rest = _counted(rest[1:], word.decode())
        else:
            raise CommandError(
                f"ERR Unexpected argument '{rest[0][:128].decode(errors='replace')}' in AI.SCRIPTEXECUTE command"
            )
    if not sections:
        raise CommandError("ERR KEYS or INPUTS scope must be provided first for AI.SCRIPTEXECUTE command")
    return Execution(
        script=args[0],
        function=args[1],
        keys=sections.get(b"KEYS", []),
        inputs=sections.get(b"INPUTS", []),
        arguments=sections.get(b"ARGS", []),
        outputs=sections.get(b"OUTPUTS", []),
        timeout_s=timeout,
    )


def _timeout(argument: bytes) -> float:
    try:
        milliseconds = whole(argument)
    except CommandError:
        milliseconds = 0
    if milliseconds <= 0:
        raise CommandError("ERR Invalid value for TIMEOUT")
    # threading can wait for some hundred years at most.
    return min(milliseconds / 1000, 1e9)


@command("ai.scriptexecute", -5, grows=True, unlocked=True)
def _scriptexecute(session: Session, args: list[bytes]) -> Reply:
    _refuse_in_transaction(session)
    execution = parse_execution(args)
    return _in_turn(
        session,
        execution.timeout_s,
        lambda: _run(session, execution, lambda key: _load(session, key), lambda outputs: _store(session, outputs)),
    )


def _refuse_in_transaction(session: Session) -> None:
    if session.executing:
        raise CommandError("ERR Cannot run RedisAI command within a transaction or a LUA script")


def _in_turn(session: Session, timeout_s: float | None, work: Callable[[], Reply]) -> Reply:
    """Call `work` after all earlier executions; reply TIMEDOUT if that takes too long."""
    turn = session.store.script_turn
    if not turn.acquire(timeout=-1 if timeout_s is None else timeout_s):
        return Simple("TIMEDOUT")
    try:
        return work()
    finally:
        turn.release()


def _run(
    session: Session,
    execution: Execution,
    get: Callable[[bytes], Tensor],
    put: Callable[[dict[bytes, Tensor]], None],
) -> Reply:
    script = _script(session, execution.script)
    if execution.function not in script.entry_points:
        raise CommandError(f"ERR Function does not exist: {execution.function.decode(errors='replace')}")
    with session.store as store:
        store.require(0)
    outputs, usage = scripts.run(
        script,
        execution.function,
        [get(key) for key in execution.inputs],
        execution.keys,
        execution.arguments,
        session.context.scripts,
    )
    if len(outputs) != len(execution.outputs):
        raise CommandError(
            f"ERR the script returned {len(outputs)} tensors, and OUTPUTS names {len(execution.outputs)} keys"
        )
    put(dict(zip(execution.outputs, outputs, strict=True)))
    session.context.report(session.context.peer, _resource(execution), usage)
    return OK


def _resource(execution: Execution) -> str:
    names = [execution.script, execution.function]
    first = execution.outputs[0] if execution.outputs else b""
    return b"/".join(names).decode(errors="replace") + " " + first.decode(errors="replace")


@dataclass(frozen=True)
class Dag:
    """The arguments of AI.DAGEXECUTE: keys to load and to persist, and the commands between the `|>`."""

    load: list[bytes]
    persist: list[bytes]
    timeout_s: float | None
    steps: list[list[Blob]]


def parse_dag(args: Sequence[Blob]) -> Dag:
    """Parse the arguments of AI.DAGEXECUTE; CommandError if they aren't valid."""
    steps: list[list[Blob]] = [[]]
    for arg in args:
        if arg == b"|>":
            steps.append([])
        else:
            steps[-1].append(arg)
    rest = [bytes(arg) for arg in steps.pop(0)]
    sections: dict[bytes, list[bytes]] = {}
    timeout = None
    while rest:
        word = rest[0].upper()
        if word in (b"LOAD", b"PERSIST") and word not in sections:
            sections[word], rest = _counted(rest[1:], f"keys to {word.decode()}")
        elif word == b"ROUTING" and len(rest) > 1:
            sections[word], rest = [rest[1]], rest[2:]
        elif word == b"TIMEOUT" and len(rest) > 1:
            timeout, rest = _timeout(rest[1]), rest[2:]
        else:
            raise CommandError(f"ERR Unexpected argument '{word[:128].decode(errors='replace')}' in AI.DAGEXECUTE")
    if not sections:
        raise CommandError("ERR AI.DAGEXECUTE command must contain LOAD, PERSIST or ROUTING")
    if not steps:
        raise CommandError("ERR DAG is empty")
    for step in steps:
        if not step or bytes(step[0][:32]).upper() not in DAG_COMMANDS:
            raise CommandError("ERR Unsupported command within DAG")
    return Dag(sections.get(b"LOAD", []), sections.get(b"PERSIST", []), timeout, steps)


@command("ai.dagexecute", -6, grows=True, raw=True, unlocked=True)
def _dagexecute(session: Session, args: list[Blob]) -> Reply:
    _refuse_in_transaction(session)
    dag = parse_dag(args)
    return _in_turn(session, dag.timeout_s, lambda: _run_dag(session, dag))


def _run_dag(session: Session, dag: Dag) -> Reply:
    """Return one reply for each step. After a failed step, the remaining replies are `NA`, and nothing is persisted."""
    tensors = {key: _load(session, key) for key in dag.load}
    replies: list[Reply] = []
    for step in dag.steps:
        try:
            replies.append(_step(session, step, tensors))
        except CommandError as error:
            replies += [error, *[Simple("NA")] * (len(dag.steps) - len(replies) - 1)]
            return replies
    if not tensors.keys() >= set(dag.persist):
        raise CommandError("ERR PERSIST key cannot be found in DAG")
    _store(session, {key: tensors[key] for key in dag.persist})
    return replies


def _step(session: Session, step: list[Blob], tensors: dict[bytes, Tensor]) -> Reply:
    """Execute a command of a DAG on the DAG's own tensors."""

    def get(key: bytes) -> Tensor:
        if key not in tensors:
            raise CommandError(NO_TENSOR)
        return tensors[key]

    name, args = bytes(step[0]).upper(), [arg if isinstance(arg, memoryview) else bytes(arg) for arg in step[1:]]
    if name == b"AI.TENSORSET":
        if len(args) < 3:
            raise wrong_arity("ai.tensorset")
        tensors[bytes(args[0])] = parse_tensor(args)
        return OK
    small = [bytes(arg) for arg in args]
    if name == b"AI.TENSORGET":
        if not small:
            raise wrong_arity("ai.tensorget")
        return _tensor_reply(get(small[0]), small[1:])
    if len(small) < 4:
        raise wrong_arity("ai.scriptexecute")
    return _run(session, parse_execution(small), get, tensors.update)


@command("ai.info", -1)
def _info(session: Session, args: list[bytes]) -> Reply:
    if args:
        tag = _script(session, args[0]).tag
        return ["key", args[0], "type", "SCRIPT", "backend", "TORCH", "device", "CPU", "tag", tag]
    settings = session.context.scripts
    return [
        "Version",
        "tensordb",
        "Backends",
        f"torch {version('torch')}",
        "strict",
        int(settings.strict),
        "INTRA_OP_PARALLELISM",
        settings.threads,
    ]


@command("ai._scriptscan", 1)
def _scriptscan(session: Session, args: list[bytes]) -> Reply:
    table = session.store.table
    return [[key, entry.value.tag] for key, entry in table.items() if isinstance(entry.value, Script)]


@command("ai._modelscan", 1)
def _modelscan(session: Session, args: list[bytes]) -> Reply:
    return []


def _unsupported(session: Session, args: list[Blob], name: str) -> Reply:
    raise CommandError(f"ERR AI.{name.upper()} is not supported by slslab's tensordb: {UNSUPPORTED[name]}")


for name in UNSUPPORTED:
    command(f"ai.{name}", -1, bound={"name": name}, raw=True, unlocked=True)(_unsupported)

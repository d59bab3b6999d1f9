# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement RedisAI's commands: AI.TENSORSET, AI.SCRIPTEXECUTE, …

Tensors and scripts are immutable, so the store is locked only while a key is looked up or set.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from slslab.tensordb import scripts
from slslab.tensordb.replies import OK, Blob, CommandError, Reply, Simple
from slslab.tensordb.scripts import Script
from slslab.tensordb.session import SYNTAX, Session, command, whole
from slslab.tensordb.store import TYPE_NAMES
from slslab.tensordb.tensors import INVALID_LENGTH, Tensor, parse_header, parse_tensor

NO_TENSOR = "ERR tensor key is empty or in a different shard"
# RedisAI's commands that tensordb doesn't have, with what to use instead.
CONTAINER = "run RedisAI's container (`slslab up --stack compose`)"
SCRIPTS = "use AI.SCRIPTSTORE and AI.SCRIPTEXECUTE"
DAG = "use AI.SCRIPTEXECUTE, or RedisAI's container (`slslab up --stack compose`)"
UNSUPPORTED = {
    **dict.fromkeys(("modelset", "modelstore", "modelget", "modeldel", "modelrun", "modelexecute"), CONTAINER),
    **dict.fromkeys(("scriptset", "scriptrun"), SCRIPTS),
    **dict.fromkeys(("dagrun", "dagrun_ro", "dagexecute", "dagexecute_ro"), DAG),
    **dict.fromkeys(("config", "info"), "it has no backends or settings; leave this out"),
}
NO_SCRIPT = "ERR script key is empty or in a different shard"

TYPE_NAMES |= {Tensor: "AI_TENSOR", Script: "AI_SCRIPT"}

V = TypeVar("V", Tensor, Script)


def _stored(session: Session, key: bytes, kind: type[V], complaint: str) -> V:
    with session.store as store:
        value: V | None = store.value(key, kind)
    if value is None:
        raise CommandError(complaint)
    return value


def _store(session: Session, tensors: dict[bytes, Tensor]) -> None:
    with session.store as store:
        store.require(sum(tensor.bytes for tensor in tensors.values()))
        for key, tensor in tensors.items():
            store.put(key, tensor, tensor.bytes)


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
    tensor = _stored(session, args[0], Tensor, NO_TENSOR)
    forms = sorted(word.upper() for word in args[1:])
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
    script = _stored(session, args[0], Script, NO_SCRIPT)
    if parts == {b"SOURCE"}:
        return script.source
    meta: list[Reply] = ["device", "CPU", "tag", script.tag, "Entry Points", list(script.entry_points)]
    return [*meta, "source", script.source] if b"SOURCE" in parts else meta


@command("ai.scriptdel", 2)
def _scriptdel(session: Session, args: list[bytes]) -> Reply:
    _stored(session, args[0], Script, NO_SCRIPT)
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


def _sections(args: Sequence[bytes]) -> tuple[dict[bytes, list[bytes]], float | None]:
    """Return the lists of AI.SCRIPTEXECUTE by their words, and how long it waits for earlier executions, s (None: no
    limit); CommandError if they aren't valid."""
    sections: dict[bytes, list[bytes]] = {}
    timeout = None
    rest = list(args)
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
    return sections, timeout


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
    """Run a script after all earlier executions; reply TIMEDOUT if these take too long."""
    if session.executing:
        raise CommandError("ERR Cannot run RedisAI command within a transaction or a LUA script")
    sections, timeout_s = _sections(args[2:])
    turn = session.store.script_turn
    if not turn.acquire(timeout=-1 if timeout_s is None else timeout_s):
        return Simple("TIMEDOUT")
    try:
        _run(session, args[0], args[1], sections)
    finally:
        turn.release()
    return OK


def _run(session: Session, key: bytes, function: bytes, sections: Mapping[bytes, list[bytes]]) -> None:
    script = _stored(session, key, Script, NO_SCRIPT)
    if function not in script.entry_points:
        raise CommandError(f"ERR Function does not exist: {function.decode(errors='replace')}")
    with session.store as store:
        store.require(0)
    keys, inputs, arguments, names = (sections.get(word, []) for word in (b"KEYS", b"INPUTS", b"ARGS", b"OUTPUTS"))
    tensors = [_stored(session, name, Tensor, NO_TENSOR) for name in inputs]
    outputs, usage = scripts.run(script, function, tensors, keys, arguments, session.context.scripts)
    if len(outputs) != len(names):
        raise CommandError(f"ERR the script returned {len(outputs)} tensors, and OUTPUTS names {len(names)} keys")
    _store(session, dict(zip(names, outputs, strict=True)))
    resource = b"%b/%b %b" % (key, function, names[0] if names else b"")
    session.context.report(session.context.peer, resource.decode(errors="replace"), usage)


def _unsupported(session: Session, args: list[Blob], name: str) -> Reply:
    raise CommandError(f"ERR AI.{name.upper()} is not supported by slslab's tensordb: {UNSUPPORTED[name]}")


for name in UNSUPPORTED:
    command(f"ai.{name}", -1, bound={"name": name}, raw=True, unlocked=True)(_unsupported)

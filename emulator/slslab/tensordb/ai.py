# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement RedisAI's commands: AI.TENSORSET, AI.SCRIPTEXECUTE, AI.DAGEXECUTE, …

Tensors and scripts are immutable, so the store is locked only while a key is looked up or set.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TypeAlias, TypeVar, cast

from slslab.tensordb import scripts
from slslab.tensordb.replies import OK, Blob, CommandError, Reply, Simple
from slslab.tensordb.scripts import Script
from slslab.tensordb.session import SYNTAX, Session, command, find, whole
from slslab.tensordb.store import ENTRY_BYTES, TYPE_NAMES, Store
from slslab.tensordb.tensors import Tensor, parse_tensor

NO_TENSOR = "ERR tensor key is empty or in a different shard"
# RedisAI's commands that tensordb doesn't have, with what to use instead.
CONTAINER = "run RedisAI's container (`slslab up --stack compose`)"
SCRIPTS = "use AI.SCRIPTSTORE and AI.SCRIPTEXECUTE"
DAG = "use AI.DAGEXECUTE"
UNSUPPORTED = {
    **dict.fromkeys(("modelset", "modelstore", "modelget", "modeldel", "modelrun", "modelexecute"), CONTAINER),
    **dict.fromkeys(("scriptset", "scriptrun"), SCRIPTS),
    **dict.fromkeys(("dagrun", "dagrun_ro", "dagexecute_ro"), DAG),
    "info": "use INFO, or AI.SCRIPTGET for a script",
    "config": "it has no backends or settings to load; leave this out",
}
NO_SCRIPT = "ERR script key is empty or in a different shard"
DAG_COMMANDS = (b"AI.TENSORSET", b"AI.TENSORGET", b"AI.SCRIPTEXECUTE")
SCRIPT_LISTS = {word.encode(): word for word in ("KEYS", "INPUTS", "ARGS", "OUTPUTS")}
DAG_LISTS = {b"LOAD": "keys to LOAD", b"PERSIST": "keys to PERSIST"}
# The values of a command's options, by their words.
Options: TypeAlias = dict[bytes, list[bytes]]

TYPE_NAMES |= {Tensor: "AI_TENSOR", Script: "AI_SCRIPT"}

V = TypeVar("V", Tensor, Script)


def _stored(store: Store, key: bytes, kind: type[V], complaint: str) -> V:
    with store:
        value: V | None = store.value(key, kind)
    if value is None:
        raise CommandError(complaint)
    return value


def _store(session: Session, tensors: dict[bytes, Tensor]) -> None:
    with session.store as store:
        # Checked for all together, so that either all are stored or none.
        store.require(sum(len(key) + ENTRY_BYTES + tensor.bytes for key, tensor in tensors.items()))
        for key, tensor in tensors.items():
            store.put(key, tensor, tensor.bytes)


@command("ai.tensorset", -4, grows=True, raw=True, unlocked=True)
def _tensorset(session: Session, args: list[Blob]) -> Reply:
    _store(session, {bytes(args[0]): parse_tensor(args)})
    return OK


@command("ai.tensorget", -2, unlocked=True)
def _tensorget(session: Session, args: list[bytes]) -> Reply:
    tensor = _stored(session.store, args[0], Tensor, NO_TENSOR)
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
    script = scripts.compile_script(rest[1], entry_points, tag)
    with session.store as store:
        store.put(key, script, len(script.source))
    return OK


@command("ai.scriptget", -2)
def _scriptget(session: Session, args: list[bytes]) -> Reply:
    parts = {word.upper() for word in args[1:]} or {b"META", b"SOURCE"}
    if not parts <= {b"META", b"SOURCE"}:
        raise CommandError(SYNTAX)
    script = _stored(session.store, args[0], Script, NO_SCRIPT)
    if parts == {b"SOURCE"}:
        return script.source
    meta: list[Reply] = ["device", "CPU", "tag", script.tag, "Entry Points", list(script.entry_points)]
    return [*meta, "source", script.source] if b"SOURCE" in parts else meta


@command("ai.scriptdel", 2)
def _scriptdel(session: Session, args: list[bytes]) -> Reply:
    _stored(session.store, args[0], Script, NO_SCRIPT)
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


def _options(args: Sequence[bytes], lists: Mapping[bytes, str], single: Sequence[bytes], name: str) -> Options:
    """Return the values of a command's options by their words: of `lists`, which have a count before them (errors call
    it by the text), and of `single` ones; CommandError if they aren't valid."""
    found: Options = {}
    rest = list(args)
    while rest:
        word = rest[0].upper()
        if word in lists and word not in found:
            found[word], rest = _counted(rest[1:], lists[word])
        elif word in single and word not in found and len(rest) > 1:
            found[word], rest = [rest[1]], rest[2:]
        else:
            raise CommandError(f"ERR Unexpected argument '{rest[0][:128].decode(errors='replace')}' in {name} command")
    return found


@command("ai.scriptexecute", -5, grows=True, unlocked=True)
def _scriptexecute(session: Session, args: list[bytes]) -> Reply:
    _refuse_in_transaction(session)
    if args[2].upper() not in (b"KEYS", b"INPUTS"):
        raise CommandError("ERR KEYS or INPUTS scope must be provided first for AI.SCRIPTEXECUTE command")
    options = _options(args[2:], SCRIPT_LISTS, (b"TIMEOUT",), "AI.SCRIPTEXECUTE")
    return _in_turn(session, options, lambda: _run(session, args[0], args[1], options))


def _refuse_in_transaction(session: Session) -> None:
    if session.executing:
        raise CommandError("ERR Cannot run RedisAI command within a transaction or a LUA script")


def _in_turn(session: Session, options: Options, work: Callable[[], Reply]) -> Reply:
    """Call `work` after all earlier executions; reply TIMEDOUT if these take longer than its TIMEOUT, ms."""
    turn, timeout_s = session.store.script_turn, -1.0
    if given := options.get(b"TIMEOUT"):
        try:
            milliseconds = whole(given[0])
        except CommandError:
            milliseconds = 0
        if milliseconds <= 0:
            raise CommandError("ERR Invalid value for TIMEOUT")
        # threading can wait for some hundred years at most.
        timeout_s = min(milliseconds / 1000, 1e9)
    if not turn.acquire(timeout=timeout_s):
        return Simple("TIMEDOUT")
    try:
        return work()
    finally:
        turn.release()


def _run(session: Session, key: bytes, function: bytes, options: Options) -> Reply:
    # Scripts and free memory are the peer's; the tensors may be a DAG's.
    peer = session.context.store
    script = _stored(peer, key, Script, NO_SCRIPT)
    if function not in script.entry_points:
        raise CommandError(f"ERR Function does not exist: {function.decode(errors='replace')}")
    with peer:
        peer.require(0)
    keys, inputs, arguments, names = (options.get(word, []) for word in (b"KEYS", b"INPUTS", b"ARGS", b"OUTPUTS"))
    tensors = [_stored(session.store, name, Tensor, NO_TENSOR) for name in inputs]
    outputs, usage = scripts.run(script, function, tensors, keys, arguments)
    if len(outputs) != len(names):
        raise CommandError(f"ERR the script returned {len(outputs)} tensors, and OUTPUTS names {len(names)} keys")
    _store(session, dict(zip(names, outputs, strict=True)))
    resource = b"%b/%b %b" % (key, function, names[0] if names else b"")
    session.context.report(session.context.peer, resource.decode(errors="replace"), usage)
    return OK


@command("ai.dagexecute", -6, grows=True, raw=True, unlocked=True)
def _dagexecute(session: Session, args: list[Blob]) -> Reply:
    _refuse_in_transaction(session)
    steps: list[list[Blob]] = [[]]
    for arg in args:
        if arg == b"|>":
            steps.append([])
        else:
            steps[-1].append(arg)
    options = _options([*map(bytes, steps.pop(0))], DAG_LISTS, (b"ROUTING", b"TIMEOUT"), "AI.DAGEXECUTE")
    if options.keys() <= {b"TIMEOUT"}:
        raise CommandError("ERR AI.DAGEXECUTE command must contain LOAD, PERSIST or ROUTING")
    if not steps:
        raise CommandError("ERR DAG is empty")
    if not all(step and bytes(step[0][:32]).upper() in DAG_COMMANDS for step in steps):
        raise CommandError("ERR Unsupported command within DAG")
    load, persist = (options.get(word, []) for word in DAG_LISTS)
    return _in_turn(session, options, lambda: _run_dag(session, load, persist, steps))


def _run_dag(session: Session, load: list[bytes], persist: list[bytes], steps: list[list[Blob]]) -> Reply:
    """Return one reply for each step. After a failed step, the remaining replies are `NA`, and nothing is persisted."""
    dag = copy(session)
    dag.store = Store()
    _store(dag, {key: _stored(session.store, key, Tensor, NO_TENSOR) for key in load})
    replies: list[Reply] = []
    for step in steps:
        try:
            entry = find(step)
            arguments = step[1:] if entry.raw else [bytes(arg) for arg in step[1:]]
            replies.append(cast(Reply, entry.handler(dag, arguments)))  # these commands never return a Waiter
        except CommandError as error:
            return [*replies, CommandError(str(error)), *[Simple("NA")] * (len(steps) - len(replies) - 1)]
    missing = "ERR PERSIST key cannot be found in DAG"
    _store(session, {key: _stored(dag.store, key, Tensor, missing) for key in persist})
    return replies


def _unsupported(session: Session, args: list[Blob], name: str) -> Reply:
    raise CommandError(f"ERR AI.{name.upper()} is not supported by slslab's tensordb: {UNSUPPORTED[name]}")


for name in UNSUPPORTED:
    command(f"ai.{name}", -1, bound={"name": name}, raw=True, unlocked=True)(_unsupported)

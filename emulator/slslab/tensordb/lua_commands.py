# ruff: noqa: ARG001 (all handlers have one signature)
"""Implement commands for Lua scripts: EVAL, EVALSHA, SCRIPT, …"""

from collections.abc import Sequence

from slslab.tensordb import session as table
from slslab.tensordb.executions import Clock
from slslab.tensordb.lua_process import Run
from slslab.tensordb.replies import OK, CommandError, Reply
from slslab.tensordb.session import Session, command, whole
from slslab.tensordb.store import Waiter

# By Redis 7's command flags: the ones with `noscript`, and the ones with neither that nor `write`.
NOT_IN_SCRIPTS = frozenset(
    "auth blmove blpop brpop brpoplpush client eval evalsha exec hello multi quit script shutdown".split()
)
READS = frozenset(
    "ai.scriptget ai.tensorget dbsize echo exists get hexists hget hgetall hkeys hlen hmget hvals info "
    "keys lindex llen lrange mget ping pttl scan scard select sismember smembers ttl type".split()
)


@command("eval", -3, bound={"by_sha": False})
@command("evalsha", -3, bound={"by_sha": True})
def _eval(session: Session, args: list[bytes], by_sha: bool) -> Reply:
    """Run a script; all other clients wait for it, as with Redis."""
    count = whole(args[1])
    if count > len(args) - 2:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("ERR Number of keys can't be negative")
    engine = session.context.lua
    sha = engine.find(args[0]) if by_sha else engine.load(args[0])
    if sha is None:
        raise CommandError("NOSCRIPT No matching script. Please use EVAL.")
    return _run(session, sha, args[2 : 2 + count], args[2 + count :])


def _run(session: Session, sha: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
    def call(words: Sequence[bytes]) -> Reply:
        try:
            entry = _allowed(words)
        except CommandError as error:
            return error
        run.wrote = run.wrote or entry.name.partition("|")[0] not in READS
        reply = table.call(session, entry, list(words[entry.words :]))
        assert not isinstance(reply, Waiter), "blocking commands are refused in scripts"
        return reply

    run = Run(call)
    clock = Clock()
    executing, session.executing = session.executing, True
    try:
        reply = session.context.lua.run(sha, keys, arguments, run)
    finally:
        session.executing = executing
    first = keys[0].decode(errors="replace") if keys else ""
    session.context.report(session.context.peer, f"lua/{sha} {first}", clock.stop(run.given, run.cpu_ns))
    return reply


def _allowed(words: Sequence[bytes]) -> table.Command:
    """Return the command that a script calls; CommandError if it may not call it."""
    entry = table.TABLE.get(words[0].lower())
    if entry is not None and entry.subcommands and len(words) > 1:
        entry = entry.subcommands.get(words[1].lower())
    if entry is None:
        raise CommandError("ERR Unknown Redis command called from script")
    if len(words) != entry.arity if entry.arity > 0 else len(words) < -entry.arity:
        raise CommandError("ERR Wrong number of args calling Redis command from script")
    if entry.name.partition("|")[0] in NOT_IN_SCRIPTS:
        raise CommandError("ERR This Redis command is not allowed from script")
    return entry


@command("script|load", 3)
def _script_load(session: Session, args: list[bytes]) -> Reply:
    return session.context.lua.load(args[0])


@command("script|exists", -3)
def _script_exists(session: Session, args: list[bytes]) -> Reply:
    return [int(session.context.lua.find(sha) is not None) for sha in args]


@command("script|flush", -2)
def _script_flush(session: Session, args: list[bytes]) -> Reply:
    if len(args) > 1 or any(mode.upper() not in (b"SYNC", b"ASYNC") for mode in args):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    session.context.lua.forget()
    return OK


@command("script|kill", 2, unlocked=True)
def _script_kill(session: Session, args: list[bytes]) -> Reply:
    session.context.lua.kill()
    return OK

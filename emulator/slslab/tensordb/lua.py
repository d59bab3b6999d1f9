# ruff: noqa: ARG001 (all handlers have one signature)
"""The one Lua script that SPIRT's released functions run, recognised by its text; no other Lua."""

import json
from collections import deque
from itertools import islice

from slslab.tensordb.replies import CommandError, Reply
from slslab.tensordb.scripts import Clock
from slslab.tensordb.session import Session, command, whole
from slslab_workers.channels.scripts import LUA_AVERAGE, average_texts


@command("eval", -3)
def _eval(session: Session, args: list[bytes]) -> Reply:
    """Run the script, for which all other clients wait, as with Redis."""
    if args[0] != LUA_AVERAGE.encode() or len(args) != 4 or args[1] != b"1":
        return _no_lua(session, args)
    items = list(islice(session.store.elements(args[2], deque), max(0, whole(args[3]))))
    clock = Clock(session.context.scripts)
    try:
        mean = f"[{','.join(average_texts(map(json.loads, items)))}]".encode()
    except (StopIteration, TypeError, ValueError) as error:
        raise CommandError(f"ERR Error running script: {error}") from None
    usage = clock.stop(sum(map(len, items)))
    session.context.report(session.context.peer, f"lua/average {args[2].decode(errors='replace')}", usage)
    return mean


def _no_lua(session: Session, args: list[bytes]) -> Reply:
    raise CommandError("ERR tensordb does not run Lua; store TorchScript by AI.SCRIPTSTORE and run AI.SCRIPTEXECUTE")


for name in ("evalsha", "eval_ro", "evalsha_ro", "script", "fcall", "function"):
    command(name, -1)(_no_lua)

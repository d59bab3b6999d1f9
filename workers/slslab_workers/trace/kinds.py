"""Kinds of work, and which kind each operation of a trace is: processors differ by kind, not by one factor."""

from collections.abc import Mapping
from typing import Literal, get_args

Kind = Literal["dense", "streaming", "startup", "interpreter"]
KINDS: tuple[Kind, ...] = get_args(Kind)
COMPUTE: Kind = "dense"
# What a handler of one's own can be said to do.
HANDLER_KINDS: tuple[Kind, ...] = ("dense", "streaming", "interpreter")
# A client's own CPU time of a request, and an environment's init.
REQUESTS: Kind = "interpreter"
INIT: Kind = "startup"
# Assumed. Connecting loads the clients' code, as init does. Everything else runs mostly in the interpreter:
# serialising, building a model, requests.
_KINDS: Mapping[str, Kind] = {
    "compute": COMPUTE,
    "validate": COMPUTE,
    "reduce": "streaming",
    "update": "streaming",
    "filter": "streaming",
    "restore": "streaming",
    "connect": "startup",
}


def kind_of(op: str) -> Kind:
    """Return the kind of work that an operation of the trace does."""
    return _KINDS.get(op, "interpreter")

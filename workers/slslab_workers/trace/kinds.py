"""Kinds of work, and the kind of each operation of a trace: processors differ by kind, not by one factor."""

from collections.abc import Mapping
from typing import Literal, get_args

Kind = Literal["dense", "streaming", "startup", "interpreter"]
KINDS: tuple[Kind, ...] = get_args(Kind)
COMPUTE: Kind = "dense"
# Kinds that users may give their own handlers.
HANDLER_KINDS: tuple[Kind, ...] = ("dense", "streaming", "interpreter")
# A client's own CPU time in a request, and an environment's init.
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
    """Return the kind of work of an operation."""
    return _KINDS.get(op, "interpreter")

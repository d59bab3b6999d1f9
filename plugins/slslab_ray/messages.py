"""Messages between an emulator and the nodes of its cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from slslab.aws.limits import Limits
from slslab.lambda_.configuration import Function
from slslab.lambda_.packages import Code

# The kind of a record that only the emulator gets: the runtime of the environment has exited.
EXITED = "exited"


@dataclass(frozen=True)
class Opening:
    """Settings for a node's environments; `settings` are more of ProcessSandboxes.

    `name` is sent when the node connects to the emulator at `address`, with `key`, the content of a file with key and
    certificate. `relay` is the address of the emulator's relay, if the node needs it.
    """

    limits: Limits
    settings: Mapping[str, Any]
    key: bytes
    name: str
    address: tuple[str, int]
    relay: tuple[str, int] | None


def with_codes(function: Function, changed: Callable[[Code], Code]) -> Function:
    """Return a function with its package and its layers changed."""
    layers = tuple(replace(layer, code=changed(layer.code)) for layer in function.layers)
    return replace(function, code=changed(function.code), layers=layers)

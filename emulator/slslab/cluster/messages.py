"""What an emulator and the nodes of its cluster tell each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.aws.limits import Limits
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import State
from slslab.lambda_.outcome import Outcome

# What a record says that is for the emulator alone: the runtime of the environment has exited.
EXITED = "exited"


@dataclass(frozen=True)
class Opening:
    """What environments of a node are made with, and where the emulator's relay is, if the node needs it."""

    limits: Limits
    isolate: bool
    template: tuple[str, ...]
    strict_packages: bool
    relay: tuple[str, int] | None
    relay_key: bytes


@dataclass(frozen=True)
class Order:
    """An environment to be made: its number, log stream and variables; the function's code is named by its digest."""

    function: Function
    number: int
    log_stream: str
    shared: Mapping[str, str]
    credentials: Mapping[str, str]


@dataclass(frozen=True)
class Batch:
    """What has happened on a node since the batch before: the environment of each, with a trace record of the node's
    clock, or with bytes of its log."""

    number: int
    happened: Sequence[tuple[str, dict[str, Any] | bytes]]


@dataclass(frozen=True)
class Done:
    """The end of something that a node was asked for; all that had happened until then is in `batch` or before it.

    `failure` says why an environment could not start; `ready` and `resting_mb` are what an idle one says of itself.
    """

    batch: Batch
    state: State
    outcome: Outcome | None = None
    failure: str = ""
    ready: bool = False
    resting_mb: int = 0

"""What an emulator and the nodes of its cluster tell each other."""

from collections.abc import Mapping
from dataclasses import dataclass

from slslab.aws.limits import Limits
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import State
from slslab.lambda_.outcome import PhaseEnd

# What a record says that is for the emulator alone: the runtime of the environment has exited.
EXITED = "exited"


@dataclass(frozen=True)
class Opening:
    """What environments of a node are made with.

    `name` is what the node says when it connects to the emulator at `address`, by `key`, a file's key and certificate.
    `relay` is where the emulator's relay is, if the node needs it.
    """

    limits: Limits
    isolate: bool
    template: tuple[str, ...]
    strict_packages: bool
    key: bytes
    name: str = ""
    address: tuple[str, int] = ("", 0)
    relay: tuple[str, int] | None = None


@dataclass(frozen=True)
class Order:
    """An environment to be made: its number, log stream and variables; the function's code is named by its digest."""

    function: Function
    number: int
    log_stream: str
    shared: Mapping[str, str]
    credentials: Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """The end of something that a node was asked for; all that had happened until then came before it.

    `failure` says why an environment could not start; `ready` and `resting_mb` are what an idle one says of itself.
    """

    state: State
    outcome: PhaseEnd | None = None
    failure: str = ""
    ready: bool = False
    resting_mb: int = 0

"""Profiles: what a platform takes for what a program does, as dated TOML with a source for each figure.

A figure is documented (its page is named), measured (by whom and how is named), or assumed. Nothing is filled in: an
operation that a profile does not know is an error that names the operation.
"""

import tomllib
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from slslab.errors import RequestError

PROFILES = Path(__file__).parent / "profiles"
Status = Literal["documented", "measured", "assumed"]


class ProfileError(RequestError):
    """A profile that cannot be found, read or trusted."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(_Entry):
    """One number, and where it is from."""

    value: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    status: Status
    source: Annotated[str, Field(min_length=1)]


class Operation(_Entry):
    """What one request takes beyond the client's own CPU time.

    `latency_ms` is what an empty one takes, an environment's first one `first_ms` more (a connection is made, a script
    compiled); bytes come on top, at `bandwidth_mb_s` (10⁶ bytes a second) of one client,
    while the client's CPU time overlaps with them: latency + max(CPU, bytes ÷ bandwidth).
    """

    latency_ms: Figure
    first_ms: Figure | None = None
    bandwidth_mb_s: Figure | None = None


class Server(_Entry):
    """What many clients share: `servers` requests are served at once, the others wait in order of arrival.

    A request occupies one for `service_ms` plus its bytes ÷ `bandwidth_mb_s`; that is a part of the operation's
    latency, and only waiting for a server comes on top. Without a server nobody waits for others."""

    servers: Figure
    service_ms: Figure
    bandwidth_mb_s: Figure | None = None


class Channel(_Entry):
    """A store, database or queue: its operations (the part of the trace's `op` after the dot), and what is shared.

    `per_worker`: each worker has a server of its own (SPIRT's databases), or all share one.
    """

    description: str
    operations: dict[str, Operation]
    server: Server | None = None
    per_worker: bool = False


class Compute(_Entry):
    """The platform's processors.

    `speed` is how fast they are, as a multiple of the recording host's: CPU seconds are divided by it. `parallel` is
    the share of a training step that runs on several threads at once (Amdahl's law), by `period_ms` the CPU share is
    enforced: a function that has used its share of a period waits for the next one. `vcpu_mb` is the memory size of one
    vCPU."""

    speed: Figure
    parallel: Figure
    period_ms: Figure
    vcpu_mb: Figure


class Functions(_Entry):
    """Lambda: what lies around a handler.

    A cold start takes `cold_zip_ms` or `cold_image_ms` before init, which is not billed, and then init's own CPU
    seconds. `warm_ms` is from acceptance to the handler. `concurrency` environments may be busy at once; of them
    `burst` may start at once and `ramp_per_s` more each second."""

    cold_zip_ms: Figure
    cold_image_ms: Figure
    warm_ms: Figure
    concurrency: Figure
    burst: Figure
    ramp_per_s: Figure


class Instances(_Entry):
    """Long-running machines: `boot_s` from launch to the program's start; compute steps are `compute_speed` times as
    fast as the recording host's CPU seconds say, all else at `host_speed` (0: not known, and a run with instances is
    refused)."""

    boot_s: Figure
    compute_speed: Figure
    host_speed: Figure


class Profile(_Entry):
    """A platform."""

    schema_version: Annotated[int, Field(alias="schema")] = 1
    name: str
    date: date
    description: str
    compute: Compute
    functions: Functions
    transition_ms: Figure
    channels: dict[str, Channel]
    instances: dict[str, Instances] = {}

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.schema_version != 1:
            raise ValueError(f"it has schema {self.schema_version}, and this version reads 1")
        return self

    def operation(self, op: str) -> Operation:
        """What an `op` of the trace such as `object.put` takes; ProfileError if the profile does not say."""
        channel, _, name = op.partition(".")
        known = self.channels.get(channel)
        if known is None or name not in known.operations:
            raise ProfileError(
                f"The profile {self.name} does not say what {op} takes.",
                f"add [channels.{channel}.operations.{name}] to it.",
            )
        return known.operations[name]

    def instance(self, type_: str) -> Instances:
        """An EC2 instance type; ProfileError if the profile does not know it."""
        if type_ not in self.instances:
            raise ProfileError(
                f"The profile {self.name} does not know the instance type {type_}.",
                f'add [instances."{type_}"] to it.',
            )
        return self.instances[type_]


def profile_names() -> tuple[str, ...]:
    """The names of the built-in profiles."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.toml")))


def load_profile(name: str | Path) -> Profile:
    """The built-in profile of this name, or else the one in the TOML file at this path; ProfileError names the
    entry."""
    path = PROFILES / f"{name}.toml" if str(name) in profile_names() else Path(name)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(
            f"There is no profile {str(name)!r}: {error.strerror}.",
            f"name one of {', '.join(profile_names())}, or give the path of a TOML file.",
        ) from error
    except ValueError as error:
        raise ProfileError(f"The profile {path} is not TOML: {error}.", "correct the file.") from error
    try:
        return Profile.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        entry = ".".join(str(part) for part in first["loc"]) or "its top"
        raise ProfileError(
            f"The profile {path} is wrong at {entry}: {first['msg'].removeprefix('Value error, ')}.", "correct it."
        ) from error

"""Define state machines: their revisions, published versions, aliases and tags.

https://docs.aws.amazon.com/step-functions/latest/dg/concepts-cd-aliases-versions.html
"""

import random
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError

PREFIX = f"arn:aws:states:{REGION}:{ACCOUNT}"
# documented: API_StartExecution.html: "A name must not contain" white space, brackets, wildcards, special and control
# characters.
NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")
ROLE = re.compile(r"arn:(aws[a-zA-Z-]*)?:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+")
# documented: API_TagResource.html
MOST_TAGS = 50
# documented: API_PublishStateMachineVersion.html: the name of a machine's first revision.
FIRST_REVISION = "INITIAL"
NO_SUCH_RESOURCE = "Request references a resource that does not exist."
Alias = Mapping[str, Any]


@dataclass(frozen=True)
class Machine:
    """One revision of a state machine. Times are seconds since the epoch."""

    name: str
    definition: str
    role: str
    program: Any = field(compare=False)
    settings: Mapping[str, Any]
    created: float = field(default_factory=time.time)
    updated: float = 0.0
    revision: str = ""

    @property
    def arn(self) -> str:
        """The machine's ARN."""
        return f"{PREFIX}:stateMachine:{self.name}"


@dataclass(frozen=True)
class Version:
    """A revision that is published under a number."""

    machine: Machine
    arn: str
    description: str
    created: float = field(default_factory=time.time)


class Registry:
    """State machines with their versions, aliases and tags; the caller takes care of threads.

    `aliases`, by ARN, have the members of DescribeStateMachineAlias; a description may be empty.
    """

    def __init__(self) -> None:
        self._machines: dict[str, Machine] = {}
        self.versions_by_arn: dict[str, Version] = {}
        self.aliases: dict[str, Alias] = {}
        self._tags: dict[str, dict[str, str]] = {}
        # The highest version number by machine ARN: numbers aren't reused.
        self._numbers: dict[str, int] = {}

    def create(self, new: Machine, tags: Mapping[str, str]) -> Machine:
        """Add a machine, or return an equal existing one; ServiceError (StateMachineAlreadyExists) if it differs."""
        machine = self._machines.setdefault(new.arn, new)
        # documented: API_CreateStateMachine.html: idempotency ignores role and tags.
        if (machine.definition, machine.settings) != (new.definition, new.settings):
            raise ServiceError(400, "StateMachineAlreadyExists", f"State Machine Already Exists: '{machine.arn}'")
        if machine is new:
            self._tags[new.arn] = _within_limit(tags)
        return machine

    def update(self, arn: str, changes: Mapping[str, Any], settings: Mapping[str, Any]) -> Machine:
        """Change a machine; if nothing differs, it keeps its revision (measured)."""
        machine = self.machine(arn)
        changed = replace(machine, **changes, settings={**machine.settings, **settings})
        revision = machine.revision if changed == machine else str(uuid.uuid4())
        self._machines[arn] = replace(changed, updated=time.time(), revision=revision)
        return self._machines[arn]

    def delete(self, arn: str) -> None:
        """Remove a machine with its versions and aliases, if it exists."""
        self._machines.pop(arn, None)
        self._tags.pop(arn, None)
        self._numbers.pop(arn, None)
        for by_arn in (self.versions_by_arn, self.aliases):
            for known in [known for known in by_arn if known.startswith(f"{arn}:")]:
                del by_arn[known]

    def machine(self, arn: str) -> Machine:
        """Return a machine; ServiceError (StateMachineDoesNotExist) if it doesn't exist."""
        if arn not in self._machines:
            raise ServiceError(400, "StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
        return self._machines[arn]

    def machines(self) -> list[Machine]:
        """Return all machines, sorted by name."""
        return sorted(self._machines.values(), key=lambda machine: machine.name)

    def revision(self, arn: str) -> tuple[Machine, Version | None]:
        """Return what the ARN of a machine or a version executes, and the version."""
        version = self.versions_by_arn.get(arn)
        return (self.machine(arn) if version is None else version.machine), version

    def target(self, arn: str) -> tuple[Machine, dict[str, str]]:
        """Return what the ARN of a machine, a version or an alias executes; an alias chooses by its weights.

        The ARNs of the alias and the version are members of the execution in the API.
        """
        started_by = {}
        if (alias := self.aliases.get(arn)) is not None:
            started_by["stateMachineAliasArn"] = arn
            routing = alias["routingConfiguration"]
            [chosen] = random.choices(routing, [entry["weight"] for entry in routing])
            arn = chosen["stateMachineVersionArn"]
        machine, version = self.revision(arn)
        return machine, started_by | ({} if version is None else {"stateMachineVersionArn": arn})

    def publish(self, arn: str, description: str, revision: str | None = None) -> Version:
        """Publish a machine's revision; if it is published already, it keeps its version (measured)."""
        machine = self.machine(arn)
        if revision is not None and revision != (machine.revision or FIRST_REVISION):
            current = machine.revision or FIRST_REVISION
            raise conflict(
                f"Failed to publish the State Machine version for revision {revision}. The current State Machine "
                f"revision is {current}."
            )
        for version in self.versions(arn):
            if version.machine.revision == machine.revision:
                return version
        number = self._numbers[arn] = self._numbers.get(arn, 0) + 1
        version = Version(machine, f"{arn}:{number}", description)
        self.versions_by_arn[version.arn] = version
        return version

    def versions(self, arn: str) -> list[Version]:
        """Return a machine's versions, latest first."""
        return [version for version in reversed(self.versions_by_arn.values()) if version.machine.arn == arn]

    def alias(self, arn: str) -> Alias:
        """Return an alias; ServiceError (ResourceNotFound) if it doesn't exist."""
        if arn not in self.aliases:
            raise ServiceError(400, "ResourceNotFound", NO_SUCH_RESOURCE)
        return self.aliases[arn]

    def tags(self, arn: str) -> dict[str, str]:
        """Return a machine's tags; ServiceError (ResourceNotFound) for ARNs without tags, such as a version's."""
        if arn not in self._tags:
            raise ServiceError(400, "ResourceNotFound", f"Resource not found: '{arn}'")
        return self._tags[arn]

    def tag(self, arn: str, tags: Mapping[str, str]) -> None:
        """Add tags to a machine."""
        self._tags[arn] = _within_limit({**self.tags(arn), **tags})

    def check_routing(self, routing: Sequence[Mapping[str, Any]]) -> None:
        """Raise ServiceError unless these are versions of one machine, each with its share of the executions."""
        versions, weights = routed(routing), [entry["weight"] for entry in routing]
        shown = f"Received: [{', '.join(versions)}]"
        if not all(re.fullmatch(r".+:stateMachine:[^:]+:\d+", version) for version in versions):
            raise _invalid(f"Routing configuration must contain state machine version ARNs. {shown}")
        if len({version.rpartition(":")[0] for version in versions}) > 1:
            # assumed: the text
            raise _invalid(f"Routing configuration must contain versions of one state machine. {shown}")
        if len(set(versions)) < len(versions):
            raise _invalid(f"Routing configuration must contain distinct state machine version ARNs. {shown}")
        if sum(weights) != 100:
            raise _invalid(f"Sum of routing configuration weights must equal 100. Received: {weights}")
        if any(version not in self.versions_by_arn for version in versions):
            raise ServiceError(400, "ResourceNotFound", NO_SUCH_RESOURCE)


def routed(routing: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the ARNs of an alias's versions."""
    return [entry["stateMachineVersionArn"] for entry in routing]


def check_name(name: str) -> None:
    """Raise ServiceError (InvalidName) for an invalid name of a machine or execution."""
    if not NAME.fullmatch(name):
        raise ServiceError(400, "InvalidName", f"Invalid Name: '{name}'")


def check_arn(arn: str, kind: str) -> None:
    """Raise ServiceError (InvalidArn) unless the ARN is of a resource of this kind, a regular expression."""
    if not arn.startswith("arn:"):
        raise _bad_arn(f"Invalid ARN prefix: {arn}")
    if not re.fullmatch(rf"arn:aws:states:[a-z0-9-]+:\d{{12}}:{kind}:[^\s]+", arn):
        # assumed: the text
        raise _bad_arn(f"Invalid ARN: {arn}")


def conflict(message: str) -> ServiceError:
    """Return a ConflictException."""
    return ServiceError(400, "ConflictException", message)


def _bad_arn(what: str) -> ServiceError:
    return ServiceError(400, "InvalidArn", f"Invalid Arn: '{what}'")


def _invalid(message: str) -> ServiceError:
    return ServiceError(400, "ValidationException", message)


def _within_limit(tags: Mapping[str, str]) -> dict[str, str]:
    if len(tags) > MOST_TAGS:
        # assumed: the text
        raise ServiceError(
            400, "TooManyTags", f"You've exceeded the number of tags allowed for a resource: {MOST_TAGS}"
        )
    return dict(tags)


def check_role(role: str) -> None:
    """Raise ServiceError (InvalidArn) for an invalid ARN of a role."""
    if not ROLE.fullmatch(role):
        raise ServiceError(400, "InvalidArn", f"Invalid Role Arn: '{role}'")

"""The functions of one emulator: versions, aliases, tags, reserved concurrency, and how their events are handled.

Error types, status codes and messages follow the Lambda API reference:
https://docs.aws.amazon.com/lambda/latest/api/API_Operations.html
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION, function_arn
from slslab.aws.errors import ServiceError, conflict, constraint, invalid, missing
from slslab.aws.limits import Limits
from slslab.lambda_.configuration import LATEST, NAME, Function, bounded, check_kind, settings
from slslab.lambda_.function_urls import FunctionUrl
from slslab.lambda_.layer_versions import LayerVersions
from slslab.lambda_.packages import Code
from slslab.lambda_.policies import Policy

REFERENCE = re.compile(
    r"(arn:aws[a-z-]*:lambda:[a-z0-9-]+:)?(\d{12}:)?(function:)?(?P<name>[a-zA-Z0-9-_]+)(:(?P<qualifier>[^:]+))?"
)
TAGS = 50


@dataclass(frozen=True)
class EventInvokeConfig:
    """How asynchronous invocations are retried, and where their records go (PutFunctionEventInvokeConfig)."""

    maximum_retry_attempts: int
    maximum_event_age_s: int
    arn: str = ""
    on_success: str | None = None
    on_failure: str | None = None
    last_modified: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the API's FunctionEventInvokeConfig."""
        return {
            "LastModified": self.last_modified,
            "FunctionArn": self.arn,
            "MaximumRetryAttempts": self.maximum_retry_attempts,
            "MaximumEventAgeInSeconds": self.maximum_event_age_s,
            "DestinationConfig": {
                key: {"Destination": arn} if arn else {}
                for key, arn in (("OnSuccess", self.on_success), ("OnFailure", self.on_failure))
            },
        }


@dataclass(frozen=True)
class Alias:
    """A name for one version of a function."""

    function: str
    name: str
    version: str
    description: str
    revision: str

    def document(self) -> dict[str, Any]:
        """Return the API's AliasConfiguration."""
        return {
            "AliasArn": function_arn(self.function, self.name),
            "Name": self.name,
            "FunctionVersion": self.version,
            "Description": self.description,
            "RevisionId": self.revision,
        }


@dataclass
class Entry:
    """Everything that belongs to one function's name."""

    latest: Function
    tags: dict[str, str]
    versions: dict[str, Function] = field(default_factory=dict)
    aliases: dict[str, Alias] = field(default_factory=dict)
    events: dict[str, EventInvokeConfig] = field(default_factory=dict)
    reserved: int | None = None
    published: int = 0
    recursive_loop: str = "Terminate"
    # By qualifier, "$LATEST" for the function itself.
    urls: dict[str, FunctionUrl] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    runtime_updates: dict[str, str] = field(default_factory=dict)

    def forget(self, qualifier: str) -> None:
        """Drop what belongs to an alias or a version that is deleted; a URL stays (recorded)."""
        for settings_of in (self.policies, self.runtime_updates):
            settings_of.pop(qualifier, None)

    def all_versions(self) -> list[Function]:
        """Return $LATEST, then the published versions in order."""
        return [self.latest, *self.versions.values()]


@dataclass(frozen=True)
class Target:
    """What a name and a qualifier resolve to: the version, and the qualifier that was used (None for none)."""

    function: Function
    qualifier: str | None

    @property
    def arn(self) -> str:
        """The ARN as the caller named it: what the function's context shows."""
        return function_arn(self.function.name, self.qualifier)

    def document(self) -> dict[str, Any]:
        """Return the API's FunctionConfiguration."""
        return self.function.document(self.qualifier)


class Functions:
    """The registry; every method takes names as AWS does: a name, a partial ARN or an ARN, qualified or not.

    `layers` are those that its functions may have.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.layers = LayerVersions(limits)
        self._entries: dict[str, Entry] = {}
        self._default_events = EventInvokeConfig(limits.event_retries.default, limits.event_age_s.default)

    def entry(self, reference: str) -> Entry:
        """Return the function's entry; ResourceNotFoundException if there is none."""
        name, qualifier = parse(reference)
        if name not in self._entries:
            raise missing(f"Function not found: {function_arn(name, qualifier)}")
        return self._entries[name]

    def resolve(self, reference: str, qualifier: str | None = None) -> Target:
        """Return the version that a name and a qualifier (a version, an alias or $LATEST) refer to."""
        name, derived = parse(reference)
        if derived is not None and qualifier not in (None, derived):
            raise invalid("The derived qualifier from the function name does not match the specified qualifier.")
        qualifier = qualifier if qualifier is not None else derived
        entry = self.entry(reference)
        version = entry.aliases[qualifier].version if qualifier in entry.aliases else qualifier
        if version in (None, LATEST):
            return Target(entry.latest, qualifier)
        if version not in entry.versions:
            raise missing(f"Function not found: {function_arn(name, qualifier)}")
        return Target(entry.versions[version], qualifier)

    def is_current(self, function: Function) -> bool:
        """Return whether exactly this version still exists."""
        entry = self._entries.get(function.name)
        return entry is not None and function in entry.all_versions()

    def entries(self) -> list[Entry]:
        """Return all functions, sorted by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    def reservation(self, name: str) -> int | None:
        """Return the concurrency that a function has reserved; None without one, or if the function was deleted."""
        return self._entries[name].reserved if name in self._entries else None

    def reserved_total(self) -> int:
        """Return the concurrency that all functions together have reserved."""
        return sum(entry.reserved or 0 for entry in self._entries.values())

    def all_versions(self) -> list[Function]:
        """Return every version of every function."""
        return [version for entry in self._entries.values() for version in entry.all_versions()]

    def codes(self) -> list[Code]:
        """Return the code of every version of every function and layer: what counts towards the account's storage."""
        return [*(version.code for version in self.all_versions()), *self.layers.codes()]

    def check_creation(self, request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return name and settings of a CreateFunction request, checked before its code is stored."""
        name, _ = parse(request["FunctionName"])
        if not NAME.fullmatch(name):
            raise constraint(name, "functionName", "Member must have length less than or equal to 64")
        if name in self._entries:
            raise conflict(f"Function already exist: {name}")
        _check_tags(request.get("Tags") or {})
        return name, self._settings(request, defaults=True)

    def create(self, request: Mapping[str, Any], code: Code) -> Target:
        """Carry out CreateFunction; its code is stored already."""
        name, checked = self.check_creation(request)
        latest = _stamped(Function(name=name, code=code, **checked))
        self.layers.check_size(code, latest.layers)
        self._entries[name] = Entry(latest, dict(request.get("Tags") or {}))
        return self.publish(name, {}) if request.get("Publish") else Target(latest, None)

    def update_configuration(self, reference: str, request: Mapping[str, Any]) -> Target:
        """Carry out UpdateFunctionConfiguration: environments started from now on have the new configuration."""
        entry = self._unqualified(reference)
        _check_revision(request, entry.latest.revision)
        check_kind(request, of_image=entry.latest.code.image is not None)
        updated = _stamped(replace(entry.latest, **self._settings(request)))
        self.layers.check_size(updated.code, updated.layers)
        entry.latest = updated
        return Target(entry.latest, None)

    def update_code(self, reference: str, request: Mapping[str, Any], code: Code) -> Target:
        """Carry out UpdateFunctionCode, its code being stored already; `DryRun` changes nothing."""
        entry = self._unqualified(reference)
        _check_revision(request, entry.latest.revision)
        if (code.image is None) != (entry.latest.code.image is None):
            kind, ask = ("Zip", "don't provide") if code.image is not None else ("Image", "provide")
            raise invalid(f"Please {ask} ImageUri when updating a function with packageType {kind}.")
        architectures = {key: value for key, value in request.items() if key == "Architectures"}
        updated = _stamped(replace(entry.latest, code=code, **settings(architectures, self._limits)))
        self.layers.check_size(code, updated.layers)
        if request.get("DryRun"):
            return Target(updated, None)
        entry.latest = updated
        return self.publish(reference, {}) if request.get("Publish") else Target(updated, None)

    def publish(self, reference: str, request: Mapping[str, Any]) -> Target:
        """Carry out PublishVersion: number $LATEST as a version, or return the last one if nothing has changed."""
        entry = self._unqualified(reference)
        _check_revision(request, entry.latest.revision)
        digest = request.get("CodeSha256")
        if digest and digest != entry.latest.code.sha256:
            raise invalid(
                f"CodeSHA256 ({digest}) is different from current CodeSHA256 in $LATEST ({entry.latest.code.sha256}). "
                "Please try again with the CodeSHA256 in $LATEST."
            )
        last = entry.versions.get(str(entry.published))
        if last is None or _content(last) != _content(entry.latest):
            entry.published += 1
            number = str(entry.published)
            description = str(request.get("Description") or entry.latest.description)
            last = _stamped(replace(entry.latest, version=number, description=description))
            entry.versions[number] = last
        return Target(last, last.version)

    def delete(self, reference: str, qualifier: str | None) -> None:
        """Carry out DeleteFunction: the whole function, or one published version that no alias names."""
        name, derived = parse(reference)
        version = qualifier if qualifier is not None else derived
        entry = self.entry(reference)
        if version is None:
            del self._entries[name]
            return
        if version == LATEST:
            raise invalid("$LATEST version cannot be deleted without deleting the function.")
        if version not in entry.versions:
            raise missing(f"Function not found: {function_arn(name, version)}")
        aliases = sorted(alias.name for alias in entry.aliases.values() if alias.version == version)
        if aliases:
            raise conflict(f"Version {version} is used by the aliases {', '.join(aliases)}: delete them first.")
        del entry.versions[version]
        entry.forget(version)

    def put_alias(self, reference: str, request: Mapping[str, Any], name: str | None) -> Alias:
        """Carry out CreateAlias (`name` is None: it is in the request), or UpdateAlias of that name."""
        entry = self._unqualified(reference)
        function = entry.latest.name
        old = entry.aliases.get(name) if name is not None else None
        if name is None:
            name = str(request["Name"])
            if name in entry.aliases:
                raise conflict(f"Alias already exists: {function_arn(function, name)}")
        elif old is None:
            raise missing(f"Alias not found: {function_arn(function, name)}")
        else:
            _check_revision(request, old.revision)
        if (request.get("RoutingConfig") or {}).get("AdditionalVersionWeights"):
            raise invalid("Weighted aliases are not emulated: an alias names one version.")
        version = str(request.get("FunctionVersion") or (old.version if old else LATEST))
        if version != LATEST and version not in entry.versions:
            raise missing(f"Function not found: {function_arn(function, version)}")
        description = request.get("Description", old.description if old else "")
        entry.aliases[name] = Alias(function, name, version, str(description), str(uuid.uuid4()))
        return entry.aliases[name]

    def alias(self, reference: str, name: str) -> Alias:
        """Carry out GetAlias."""
        entry = self.entry(reference)
        if name not in entry.aliases:
            raise missing(f"Cannot find alias arn: {function_arn(entry.latest.name, name)}")
        return entry.aliases[name]

    def reserve(self, reference: str, request: Mapping[str, Any]) -> None:
        """Carry out PutFunctionConcurrency: reserve concurrent executions that no other function may use."""
        entry = self.entry(reference)
        value: int = request["ReservedConcurrentExecutions"]
        others = self.reserved_total() - (entry.reserved or 0)
        floor = self._limits.unreserved_concurrency
        if self._limits.account_concurrency - others - value < floor:
            raise invalid(
                "Specified ReservedConcurrentExecutions for function decreases account's "
                f"UnreservedConcurrentExecution below its minimum value of [{floor}]."
            )
        entry.reserved = value

    def put_events(
        self, reference: str, qualifier: str | None, request: Mapping[str, Any], keep: bool
    ) -> EventInvokeConfig:
        """Carry out PutFunctionEventInvokeConfig, or UpdateFunctionEventInvokeConfig, which keeps what is not named.

        Destinations may be functions, and for failures S3 buckets; others are refused.
        """
        target = self.resolve(reference, qualifier)
        base = self.events(reference, qualifier) if keep else self._default_events
        destinations = request.get("DestinationConfig") or {}
        chosen = {
            "on_success": (destinations.get("OnSuccess") or {}).get("Destination", base.on_success) or None,
            "on_failure": (destinations.get("OnFailure") or {}).get("Destination", base.on_failure) or None,
        }
        for kind, arn in chosen.items():
            bucket = kind == "on_failure" and str(arn).startswith("arn:aws:s3:::")
            if arn and not bucket and not str(arn).startswith(f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:"):
                raise invalid(
                    f"The destination {arn} is not emulated; name a function of this emulator, or for failures an S3 "
                    "bucket (arn:aws:s3:::BUCKET)."
                )
        limits, qualifier = self._limits, target.qualifier or LATEST
        configs = self.entry(reference).events
        configs[qualifier] = EventInvokeConfig(
            bounded(
                request, "MaximumRetryAttempts", replace(limits.event_retries, default=base.maximum_retry_attempts)
            ),
            bounded(request, "MaximumEventAgeInSeconds", replace(limits.event_age_s, default=base.maximum_event_age_s)),
            function_arn(target.function.name, qualifier),
            last_modified=datetime.now(UTC).timestamp(),
            **chosen,
        )
        return configs[qualifier]

    def events(self, reference: str, qualifier: str | None) -> EventInvokeConfig:
        """Carry out GetFunctionEventInvokeConfig."""
        target = self.resolve(reference, qualifier)
        configs, qualifier = self.entry(reference).events, target.qualifier or LATEST
        if qualifier not in configs:
            raise missing(
                f"The function {function_arn(target.function.name, qualifier)} doesn't have an EventInvokeConfig"
            )
        return configs[qualifier]

    def delete_events(self, reference: str, qualifier: str | None) -> None:
        """Carry out DeleteFunctionEventInvokeConfig."""
        self.events(reference, qualifier)  # raises if there is none
        del self.entry(reference).events[self.resolve(reference, qualifier).qualifier or LATEST]

    def events_of(self, target: Target) -> EventInvokeConfig:
        """Return what applies to an event of this target: its configuration, or Lambda's defaults."""
        entry = self._entries.get(target.function.name)
        return entry.events.get(target.qualifier or LATEST, self._default_events) if entry else self._default_events

    def tag(self, arn: str, request: Mapping[str, Any]) -> None:
        """Carry out TagResource."""
        tags = self.entry(arn).tags
        _check_tags(tags | dict(request.get("Tags") or {}))
        tags |= request.get("Tags") or {}

    def _settings(self, request: Mapping[str, Any], *, defaults: bool = False) -> dict[str, Any]:
        """Check the configuration in a request, and the layers that it names."""
        checked = settings(request, self._limits, defaults=defaults)
        return checked | ({"layers": self.layers.chosen(request["Layers"])} if "Layers" in request else {})

    def _unqualified(self, reference: str) -> Entry:
        _, qualifier = parse(reference)
        if qualifier not in (None, LATEST):
            raise invalid(
                "This operation is permitted on Lambda functions only. Aliases and versions do not support it."
            )
        return self.entry(reference)


@lru_cache(1024)
def parse(reference: str) -> tuple[str, str | None]:
    """Return name and qualifier of a name, a partial ARN or an ARN."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise constraint(
            reference, "functionName", f"Member must satisfy regular expression pattern: {REFERENCE.pattern}"
        )
    return match["name"], match["qualifier"]


def _stamped(function: Function) -> Function:
    stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "+0000")
    return replace(function, last_modified=stamp, revision=str(uuid.uuid4()))


def _content(function: Function) -> Function:
    """Return what two versions are compared by."""
    return replace(function, version="", description="", last_modified="", revision="")


def _check_revision(request: Mapping[str, Any], current: str) -> None:
    if request.get("RevisionId") not in (None, current):
        raise ServiceError(
            412,
            "PreconditionFailedException",
            "The RevisionId provided does not match the latest RevisionId. Call the "
            "GetFunction/GetAlias API to retrieve the latest RevisionId",
        )


def _check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > TAGS:
        raise invalid(f"The number of tags exceeds the limit of {TAGS}.")

"""The functions of one emulator: versions, aliases, tags, reserved concurrency, and what becomes of their events.

Error types, status codes and messages follow the Lambda API reference:
https://docs.aws.amazon.com/lambda/latest/api/API_Operations.html
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from slslab.configuration import (
    ACCOUNT,
    LATEST,
    NAME,
    REGION,
    Function,
    bounded,
    check_kind,
    function_arn,
    required,
    settings,
)
from slslab.limits import Limits
from slslab.packages import Code
from slslab.service_errors import ServiceError, conflict, constraint, invalid, missing

REFERENCE = re.compile(
    r"(arn:aws[a-z-]*:lambda:[a-z0-9-]+:)?(\d{12}:)?(function:)?(?P<name>[a-zA-Z0-9-_]+)(:(?P<qualifier>[^:]+))?"
)
ALIAS = re.compile(r"(?!^[0-9]+$)([a-zA-Z0-9-_]{1,128})")
TAGS = 50


@dataclass(frozen=True)
class EventInvokeConfig:
    """What becomes of an asynchronous invocation (PutFunctionEventInvokeConfig)."""

    maximum_retry_attempts: int
    maximum_event_age_s: int
    on_success: str | None = None
    on_failure: str | None = None
    last_modified: float = 0.0

    def document(self, name: str, qualifier: str) -> dict[str, Any]:
        """The API's shape."""
        destinations = {"OnSuccess": self.on_success, "OnFailure": self.on_failure}
        return {
            "LastModified": self.last_modified,
            "FunctionArn": function_arn(name, qualifier),
            "MaximumRetryAttempts": self.maximum_retry_attempts,
            "MaximumEventAgeInSeconds": self.maximum_event_age_s,
            "DestinationConfig": {key: {"Destination": arn} if arn else {} for key, arn in destinations.items()},
        }


@dataclass(frozen=True)
class Alias:
    """A name for one version."""

    name: str
    version: str
    description: str
    revision: str

    def document(self, function: str) -> dict[str, Any]:
        """AliasConfiguration of the API."""
        return {
            "AliasArn": function_arn(function, self.name),
            "Name": self.name,
            "FunctionVersion": self.version,
            "Description": self.description,
            "RevisionId": self.revision,
        }


@dataclass
class Entry:
    """All that is known of one function's name."""

    latest: Function
    tags: dict[str, str]
    versions: dict[str, Function] = field(default_factory=dict)
    aliases: dict[str, Alias] = field(default_factory=dict)
    events: dict[str, EventInvokeConfig] = field(default_factory=dict)
    reserved: int | None = None
    published: int = 0

    def all_versions(self) -> list[Function]:
        """$LATEST, then the published ones in their order."""
        return [self.latest, *self.versions.values()]


@dataclass(frozen=True)
class Target:
    """What a name and a qualifier lead to: the version, and the qualifier that was used (None for none)."""

    function: Function
    qualifier: str | None

    @property
    def arn(self) -> str:
        """The ARN as the caller named it: what the function's context shows."""
        return function_arn(self.function.name, self.qualifier)

    def document(self) -> dict[str, Any]:
        """FunctionConfiguration."""
        return self.function.document(self.qualifier)


class Functions:
    """The registry; every method takes names as AWS does: a name, a partial ARN or an ARN, qualified or not."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries: dict[str, Entry] = {}

    def entry(self, reference: str) -> Entry:
        """All that is known of the function; ResourceNotFoundException when there is none."""
        name, qualifier = parse(reference)
        if name not in self._entries:
            raise missing(f"Function not found: {function_arn(name, qualifier)}")
        return self._entries[name]

    def resolve(self, reference: str, qualifier: str | None = None) -> Target:
        """The version that a name and a qualifier (a version, an alias or $LATEST) lead to."""
        name, own = parse(reference)
        if own is not None and qualifier is not None and own != qualifier:
            raise invalid("The derived qualifier from the function name does not match the specified qualifier.")
        wanted = qualifier if qualifier is not None else own
        entry = self.entry(reference)
        if wanted is None or wanted == LATEST:
            return Target(entry.latest, wanted)
        version = entry.aliases[wanted].version if wanted in entry.aliases else wanted
        if version == LATEST:
            return Target(entry.latest, wanted)
        if version not in entry.versions:
            raise missing(f"Function not found: {function_arn(name, wanted)}")
        return Target(entry.versions[version], wanted)

    def is_current(self, function: Function) -> bool:
        """Whether this very version still exists."""
        entry = self._entries.get(function.name)
        return entry is not None and function in entry.all_versions()

    def names(self) -> list[str]:
        """All functions' names, in order."""
        return sorted(self._entries)

    def reserved_total(self) -> int:
        """Concurrency that functions have reserved, all together."""
        return sum(entry.reserved or 0 for entry in self._entries.values())

    def code_size(self) -> int:
        """Bytes of all packages of all versions, as the account settings count them."""
        return sum(version.code.size for entry in self._entries.values() for version in entry.all_versions())

    def codes(self) -> list[Code]:
        """The packages of all versions."""
        return [version.code for entry in self._entries.values() for version in entry.all_versions()]

    def check_creation(self, request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Name and settings of a CreateFunction request, checked before its code is taken."""
        name, _ = parse(required(request, "FunctionName"))
        if not NAME.fullmatch(name):
            raise constraint(name, "functionName", "Member must have length less than or equal to 64")
        if name in self._entries:
            raise conflict(f"Function already exist: {name}")
        _check_tags(request.get("Tags") or {})
        return name, settings(request, self._limits, defaults=True)

    def create(self, request: Mapping[str, Any], code: Code) -> Target:
        """CreateFunction, its code being stored."""
        name, checked = self.check_creation(request)
        latest = _stamped(Function(name=name, code=code, **checked))
        self._entries[name] = Entry(latest, dict(request.get("Tags") or {}))
        return self.publish(name, {}) if request.get("Publish") else Target(latest, None)

    def update_configuration(self, reference: str, request: Mapping[str, Any]) -> Target:
        """UpdateFunctionConfiguration: environments started from now on have the new configuration."""
        entry = self._unqualified(reference)
        _check_revision(request, entry.latest.revision)
        check_kind(request, of_image=entry.latest.code.image is not None)
        entry.latest = _stamped(replace(entry.latest, **settings(request, self._limits)))
        return Target(entry.latest, None)

    def update_code(self, reference: str, request: Mapping[str, Any], code: Code) -> Target:
        """UpdateFunctionCode, its code being stored; `DryRun` changes nothing."""
        entry = self._unqualified(reference)
        _check_revision(request, entry.latest.revision)
        if (code.image is None) != (entry.latest.code.image is None):
            kind, ask = ("Zip", "don't provide") if code.image is not None else ("Image", "provide")
            raise invalid(f"Please {ask} ImageUri when updating a function with packageType {kind}.")
        chosen = {key: value for key, value in request.items() if key == "Architectures"}
        updated = _stamped(replace(entry.latest, code=code, **settings(chosen, self._limits)))
        if request.get("DryRun"):
            return Target(updated, None)
        entry.latest = updated
        return self.publish(reference, {}) if request.get("Publish") else Target(updated, None)

    def publish(self, reference: str, request: Mapping[str, Any]) -> Target:
        """PublishVersion: $LATEST as a numbered version; the last one again if nothing has changed since."""
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
        """DeleteFunction: all of it, or one published version that no alias names."""
        name, own = parse(reference)
        wanted = qualifier if qualifier is not None else own
        entry = self.entry(reference)
        if wanted is None:
            del self._entries[name]
            return
        if wanted == LATEST:
            raise invalid("$LATEST version cannot be deleted without deleting the function.")
        if wanted not in entry.versions:
            raise missing(f"Function not found: {function_arn(name, wanted)}")
        aliases = sorted(alias.name for alias in entry.aliases.values() if alias.version == wanted)
        if aliases:
            raise conflict(f"Version {wanted} is used by the aliases {', '.join(aliases)}: delete them first.")
        del entry.versions[wanted]

    def put_alias(self, reference: str, request: Mapping[str, Any], name: str | None) -> Alias:
        """CreateAlias (`name` None, it stands in the request), or UpdateAlias of that name."""
        entry = self._unqualified(reference)
        function = entry.latest.name
        old = entry.aliases.get(name) if name is not None else None
        if name is None:
            name = required(request, "Name")
            if not ALIAS.fullmatch(name):
                raise constraint(name, "name", f"Member must satisfy regular expression pattern: {ALIAS.pattern}")
            if name in entry.aliases:
                raise conflict(f"Alias already exists: {function_arn(function, name)}")
            required(request, "FunctionVersion")
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
        entry.aliases[name] = Alias(name, version, str(description), str(uuid.uuid4()))
        return entry.aliases[name]

    def alias(self, reference: str, name: str) -> Alias:
        """GetAlias."""
        entry = self.entry(reference)
        if name not in entry.aliases:
            raise missing(f"Cannot find alias arn: {function_arn(entry.latest.name, name)}")
        return entry.aliases[name]

    def delete_alias(self, reference: str, name: str) -> None:
        """DeleteAlias; an alias that is not there is deleted already."""
        self.entry(reference).aliases.pop(name, None)

    def reserve(self, reference: str, request: Mapping[str, Any]) -> int:
        """PutFunctionConcurrency: executions that this function may have at once, and no other may take."""
        entry = self.entry(reference)
        value = request.get("ReservedConcurrentExecutions")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            rule = "Member must have value greater than or equal to 0"
            raise constraint(value, "reservedConcurrentExecutions", rule)
        others = self.reserved_total() - (entry.reserved or 0)
        floor = self._limits.unreserved_concurrency
        if self._limits.account_concurrency - others - value < floor:
            raise invalid(
                "Specified ReservedConcurrentExecutions for function decreases account's "
                f"UnreservedConcurrentExecution below its minimum value of [{floor}]."
            )
        entry.reserved = value
        return value

    def put_events(self, reference: str, qualifier: str | None, request: Mapping[str, Any], keep: bool) -> str:
        """PutFunctionEventInvokeConfig, or UpdateFunctionEventInvokeConfig where `keep` retains what is not named.

        Returns the qualifier. Destinations may be functions, and for failures S3 buckets; others are refused.
        """
        target = self.resolve(reference, qualifier)
        entry, qualifier = self.entry(reference), target.qualifier or LATEST
        base = entry.events.get(qualifier) if keep else None
        if base is None:
            if keep:
                raise self._no_events(entry, qualifier)
            base = EventInvokeConfig(self._limits.event_retries.default, self._limits.event_age_s.default)
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
        retries = replace(self._limits.event_retries, default=base.maximum_retry_attempts)
        age = replace(self._limits.event_age_s, default=base.maximum_event_age_s)
        entry.events[qualifier] = EventInvokeConfig(
            bounded(request, "MaximumRetryAttempts", retries),
            bounded(request, "MaximumEventAgeInSeconds", age),
            last_modified=datetime.now(UTC).timestamp(),
            **chosen,
        )
        return qualifier

    def events(self, reference: str, qualifier: str | None) -> tuple[str, EventInvokeConfig]:
        """GetFunctionEventInvokeConfig: the qualifier and its configuration."""
        target = self.resolve(reference, qualifier)
        entry, wanted = self.entry(reference), target.qualifier or LATEST
        if wanted not in entry.events:
            raise self._no_events(entry, wanted)
        return wanted, entry.events[wanted]

    def events_of(self, target: Target) -> EventInvokeConfig:
        """What holds for an event of this target: its configuration, or Lambda's defaults."""
        entry = self._entries.get(target.function.name)
        default = EventInvokeConfig(self._limits.event_retries.default, self._limits.event_age_s.default)
        return entry.events.get(target.qualifier or LATEST, default) if entry else default

    def delete_events(self, reference: str, qualifier: str | None) -> None:
        """DeleteFunctionEventInvokeConfig."""
        wanted, _ = self.events(reference, qualifier)
        del self.entry(reference).events[wanted]

    def tag(self, arn: str, request: Mapping[str, Any]) -> None:
        """TagResource."""
        tags = self.entry(arn).tags
        _check_tags(tags | dict(request.get("Tags") or {}))
        tags |= request.get("Tags") or {}

    def untag(self, arn: str, keys: list[str]) -> None:
        """UntagResource."""
        for key in keys:
            self.entry(arn).tags.pop(key, None)

    def _unqualified(self, reference: str) -> Entry:
        _, qualifier = parse(reference)
        if qualifier not in (None, LATEST):
            raise invalid(
                "This operation is permitted on Lambda functions only. Aliases and versions do not support it."
            )
        return self.entry(reference)

    @staticmethod
    def _no_events(entry: Entry, qualifier: str) -> ServiceError:
        return missing(f"The function {function_arn(entry.latest.name, qualifier)} doesn't have an EventInvokeConfig")


def parse(reference: str) -> tuple[str, str | None]:
    """Name and qualifier out of a name, partial ARN or ARN."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise constraint(
            reference, "functionName", f"Member must satisfy regular expression pattern: {REFERENCE.pattern}"
        )
    return match["name"], match["qualifier"]


def _stamped(function: Function) -> Function:
    now = datetime.now(UTC)
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}+0000"
    return replace(function, last_modified=stamp, revision=str(uuid.uuid4()))


def _content(function: Function) -> Function:
    """What two versions are compared by."""
    return replace(function, version="", description="", last_modified="", revision="")


def _check_revision(request: Mapping[str, Any], current: str) -> None:
    if request.get("RevisionId") not in (None, current):
        message = (
            "The RevisionId provided does not match the latest RevisionId. Call the "
            "GetFunction/GetAlias API to retrieve the latest RevisionId"
        )
        raise ServiceError(412, "PreconditionFailedException", message)


def _check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > TAGS:
        raise invalid(f"The number of tags exceeds the limit of {TAGS}.")

"""The functions of one emulator: versions, aliases, tags and reserved concurrency.

Error types, status codes and messages are measured (recorded from AWS) unless a comment says otherwise.
https://docs.aws.amazon.com/lambda/latest/api/API_Operations.html
"""

import random
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from slslab.aws.errors import ServiceError, conflict, invalid, missing, violation
from slslab.aws.limits import Limits
from slslab.lambda_.api import Answer, Call, Operations
from slslab.lambda_.configuration import CREATING, UPDATING, Function, check_kind, settings
from slslab.lambda_.layers import LayerVersions, timestamp
from slslab.lambda_.packages import Code, Packages
from slslab.lambda_.references import LATEST, function_arn, parse

TAGS = 50
NAME_LENGTH = 64
ALIAS = re.compile(r"(?!\d+$)[a-zA-Z0-9-_]+")

Statement = dict[str, Any]
# The statements of one resource, by their ids.
Policy = dict[str, Statement]


@dataclass
class Entry:
    """Everything that belongs to one function's name."""

    latest: Function
    tags: dict[str, str]
    versions: dict[str, Function] = field(default_factory=dict)
    # In the API's form: AliasConfiguration by name, FunctionEventInvokeConfig by qualifier.
    aliases: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    reserved: int | None = None
    # The last published version, and the revision of $LATEST that it was made of.
    published: tuple[str, str] = ("0", "")
    # By qualifier, "$LATEST" for the function itself. A URL has `Id`, the first label of its host, and the
    # members of the API's answers.
    urls: dict[str, dict[str, Any]] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)

    def forget(self, qualifier: str) -> None:
        """Drop what belongs to a deleted alias or version, except its URL (recorded)."""
        self.events.pop(qualifier, None)
        self.policies.pop(qualifier, None)

    def all_versions(self) -> list[Function]:
        """Return $LATEST, then the published versions in order."""
        return [self.latest, *self.versions.values()]

    def renew_revision_id(self, qualifier: str | None = None) -> None:
        """Give an alias, a version or $LATEST a new revision id, as AWS also does if environments stay."""
        revision = str(uuid.uuid4())
        if qualifier in self.aliases:
            self.aliases[qualifier] = {**self.aliases[qualifier], "RevisionId": revision}
        elif qualifier in self.versions:
            self.versions[qualifier] = replace(self.versions[qualifier], revision_id=revision)
        else:
            self.latest = replace(self.latest, revision_id=revision)


class Target(NamedTuple):
    """What a name and a qualifier resolve to: the version, and the qualifier (None without one)."""

    function: Function
    qualifier: str | None


class Functions:
    """The registry of one emulator; methods that carry out an operation return AWS's answer.

    `layers` has the layers that its functions may use.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.layers = LayerVersions()
        self._entries: dict[str, Entry] = {}

    def exists(self, name: str) -> bool:
        """Return whether a function with this name exists."""
        return name in self._entries

    def entry(self, name: str, qualifier: str | None = None) -> Entry:
        """Return the function's entry; ResourceNotFoundException, which names the qualifier, if it is missing."""
        if name not in self._entries:
            raise missing(f"Function not found: {function_arn(name, qualifier)}")
        return self._entries[name]

    def resolve(self, name: str, qualifier: str | None = None) -> Target:
        """Return the version that a name and a qualifier (a version, an alias or $LATEST) refer to."""
        entry = self.entry(name, qualifier)
        alias = entry.aliases.get(qualifier or "")
        return Target(self.version(entry, alias["FunctionVersion"] if alias else qualifier, qualifier), qualifier)

    def route(self, name: str, qualifier: str | None = None) -> Target:
        """Return the version that an invocation goes to: an alias with weights chooses one by chance."""
        entry = self.entry(name, qualifier or LATEST)
        alias = entry.aliases.get(qualifier or "")
        return Target(self.version(entry, _drawn(alias) if alias else qualifier, qualifier), qualifier)

    def version(self, entry: Entry, version: str | None, qualifier: str | None) -> Function:
        """Return a version; ResourceNotFoundException, which names the qualifier, if it is missing."""
        if version in (None, LATEST):
            return entry.latest
        if version not in entry.versions:
            raise missing(f"Function not found: {function_arn(entry.latest.name, qualifier)}")
        return entry.versions[version]

    def is_current(self, function: Function) -> bool:
        """Return whether exactly this version still exists."""
        entry = self._entries.get(function.name)
        if entry is None:
            return False
        version = entry.latest if function.version == LATEST else entry.versions.get(function.version)
        # Each change of its code or configuration gives it another revision.
        return version is not None and version.revision == function.revision

    def entries(self) -> list[Entry]:
        """Return all functions, sorted by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    def reservation(self, name: str) -> int | None:
        """Return the concurrency that a function has reserved; None without one, or if the function was deleted."""
        return self._entries[name].reserved if name in self._entries else None

    def reserved_total(self) -> int:
        """Return the concurrency that all functions together have reserved."""
        return sum([entry.reserved or 0 for entry in self._entries.values()])

    def all_versions(self) -> list[Function]:
        """Return every version of every function."""
        return [version for entry in self._entries.values() for version in entry.all_versions()]

    def codes(self) -> list[Code]:
        """Return the code of every version of every function and layer: what counts towards the account's storage."""
        return [*(version.code for version in self.all_versions()), *self.layers.codes()]

    def check_creation(self, request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return name and settings of a CreateFunction request, checked before its code is stored."""
        name = parse(request["FunctionName"]).name
        checked = self._settings(request)
        if len(name) > NAME_LENGTH:
            rule = f"Member must have length less than or equal to {NAME_LENGTH}"
            # AWS checks this separately, with another error type than for the model's rules.
            raise invalid(f"1 validation error detected: {violation(name, 'functionName', rule)}")
        if name in self._entries:
            raise conflict(f"Function already exist: {name}")
        check_tags(request.get("Tags") or {})
        return name, checked

    def create(self, request: Mapping[str, Any], code: Code) -> dict[str, Any]:
        """Carry out CreateFunction; its code is stored already."""
        name, checked = self.check_creation(request)
        latest = self._stamped(Function(name=name, code=code, **checked))
        entry = self._entries[name] = Entry(latest, dict(request.get("Tags") or {}))
        created = self.publish(entry) if request.get("Publish") else latest
        entry.renew_revision_id()
        return created.document(phase=CREATING)

    def update_configuration(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out UpdateFunctionConfiguration: environments started from now on have the new configuration."""
        entry = self.entry(name)
        check_revision(request, entry.latest.revision_id)
        check_kind(request, of_image=entry.latest.code.image is not None)
        return self._update(entry, replace(entry.latest, **self._settings(request, entry.latest)))

    def update_code(self, name: str, request: Mapping[str, Any], code: Code) -> dict[str, Any]:
        """Carry out UpdateFunctionCode; its code is stored already. `DryRun` changes nothing."""
        entry = self.entry(name)
        check_revision(request, entry.latest.revision_id)
        if (code.image is None) != (entry.latest.code.image is None):
            kind, ask = ("Zip", "don't provide") if code.image is not None else ("Image", "provide")
            raise invalid(f"Please {ask} ImageUri when updating a function with packageType {kind}.")
        architectures = {key: value for key, value in request.items() if key == "Architectures"}
        updated = replace(entry.latest, code=code, **settings(architectures, self.limits, entry.latest))
        if request.get("DryRun"):
            return self._stamped(updated).document(phase=UPDATING)
        answer = self._update(entry, updated)
        if not request.get("Publish"):
            return answer
        version = self.publish(entry)
        return version.document(version.version, CREATING)

    def delete(self, name: str, qualifier: str | None) -> None:
        """Carry out DeleteFunction: the whole function, or one published version that no alias names."""
        if qualifier == LATEST:
            raise invalid("$LATEST version cannot be deleted without deleting the function.")
        if qualifier is not None and not qualifier.isdigit():
            if qualifier.startswith("$"):
                raise missing(f"Function not found: {function_arn(name)}")
            raise invalid("Deletion of aliases is not currently supported.")
        entry = self.entry(name)
        if qualifier is None:
            del self._entries[name]
            return
        aliases = sorted(
            name for name, alias in entry.aliases.items() if qualifier in (alias["FunctionVersion"], *weights(alias))
        )
        if aliases:
            # assumed: the error's type is documented, its text is not.
            raise conflict(f"Version {qualifier} is used by the aliases {', '.join(aliases)}: delete them first.")
        entry.versions.pop(qualifier, None)
        entry.forget(qualifier)

    def _settings(self, request: Mapping[str, Any], before: Function | None = None) -> dict[str, Any]:
        checked = settings(request, self.limits, before)
        return checked | ({"layers": self.layers.chosen(request["Layers"])} if "Layers" in request else {})

    def _stamped(self, function: Function) -> Function:
        """Return a new version with its revision; an error if its code and its layers are too large together."""
        size, limit = sum(code.unzipped for code in function.codes), self.limits.unzipped_bytes
        if function.layers and size > limit:
            # AWS users quote this text.
            raise invalid(
                f"Function code combined with layers exceeds the maximum allowed size of {limit} bytes. "
                f"The actual size is {size} bytes."
            )
        return replace(function, last_modified=timestamp(), revision=str(uuid.uuid4()), revision_id=str(uuid.uuid4()))

    def _update(self, entry: Entry, updated: Function) -> dict[str, Any]:
        """Register a changed $LATEST and return AWS's answer; the end of the update changes the revision id again."""
        entry.latest = self._stamped(updated)
        answer = entry.latest.document(phase=UPDATING)
        entry.renew_revision_id()
        return answer

    def publish(self, entry: Entry, description: str = "") -> Function:
        """Return a new version of $LATEST, or the last one if $LATEST has not been updated since."""
        number, revision = entry.published
        if number in entry.versions and revision == entry.latest.revision:
            return entry.versions[number]
        # AWS never reuses a number, even for a new function of the same name; here each function begins with 1.
        number = str(int(number) + 1)
        entry.published = number, entry.latest.revision
        version = replace(entry.latest, version=number, description=description or entry.latest.description)
        entry.versions[number] = self._stamped(version)
        entry.renew_revision_id()
        return entry.versions[number]


def weights(alias: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of an alias's invocations that another version gets."""
    return dict(alias.get("RoutingConfig", {}).get("AdditionalVersionWeights", {}))


def _drawn(alias: Mapping[str, Any]) -> str:
    """Return the version that an alias's invocation goes to."""
    shares = weights(alias)
    drawn = random.choices([*shares, alias["FunctionVersion"]], [*shares.values(), 1 - sum(shares.values())])
    return str(drawn[0])


def check_revision(request: Mapping[str, Any], current: str, where: str = "GetFunction/GetAlias") -> None:
    """Raise PreconditionFailedException if a request names another revision than the current one."""
    if request.get("RevisionId") not in (None, current):
        raise ServiceError(
            412,
            "PreconditionFailedException",
            "The Revision Id provided does not match the latest Revision Id. "
            f"Call the {where} API to retrieve the latest Revision Id",
        )


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise InvalidParameterValueException for more tags than a resource may have."""
    if len(tags) > TAGS:
        raise invalid("Number of tags exceeds resource tag limit.")


class FunctionResource(Operations):
    """Operations on something that belongs to a function, or to one of its versions and aliases."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def _qualified(self, call: Call, absent: str = "") -> Entry:
        """Return the function that a request names, with its version or alias; the error may have the text `absent`.

        The usual error for a missing alias differs from the one for a version (recorded).
        """
        try:
            self._functions.resolve(call.name, call.qualifier)
        except ServiceError as error:
            if not absent and call.qualifier is not None and ALIAS.fullmatch(call.qualifier):
                absent = f"Cannot find alias arn: {function_arn(call.name, call.qualifier)}"
            raise missing(absent or error.message) from error
        return self._functions.entry(call.name)


class FunctionOperations(FunctionResource):
    """The operations on functions of one emulator.

    `prepare` is called with each version that becomes invocable, `retire` when one stops being invocable.
    """

    def __init__(
        self,
        functions: Functions,
        packages: Packages,
        prepare: Callable[[Function], None],
        retire: Callable[[], None],
    ) -> None:
        super().__init__(functions)
        self._packages = packages
        self._prepare, self._retire = prepare, retire

    async def _create_function(self, call: Call) -> Answer:
        name, _ = self._functions.check_creation(call.members)
        async with self._packages.stored(name, call.members.get("Code") or {}, self._retire) as code:
            answer = self._functions.create(call.members, code)
            self._prepare(self._functions.entry(name).latest)
            return answer

    async def _update_function_code(self, call: Call) -> Answer:
        self._functions.entry(call.unqualified)  # raises before its code is stored
        async with self._packages.stored(call.name, call.members, self._retire) as code:
            return self._functions.update_code(call.name, call.members, code)

    async def _list_functions(self, call: Call) -> Answer:
        every = call.members.get("FunctionVersion") == "ALL"
        documents: dict[str, dict[str, Any]] = {}
        for entry in self._functions.entries():
            for function in entry.all_versions() if every else [entry.latest]:
                key = f"{function.name} {_order(function.version)}"
                documents[key] = function.listed(function.version if every else None)
        return call.page("Functions", documents)

    async def _get_function(self, call: Call) -> Answer:
        target = self._functions.resolve(call.name, call.qualifier)
        entry = self._functions.entry(call.name)
        location = self._location(target.function.code, call.headers["host"])
        document: dict[str, Any] = {"Configuration": target.function.document(call.qualifier), "Code": location}
        if call.qualifier is not None:
            return document
        if entry.tags:
            document["Tags"] = entry.tags
        if entry.reserved is not None:
            document["Concurrency"] = {"ReservedConcurrentExecutions": entry.reserved}
        return document

    def _location(self, code: Code, host: str) -> dict[str, str]:
        """Return the API's FunctionCodeLocation; a directory used in place has its own repository type."""
        if code.image is None:
            kind = "Local" if code.archive is None else "S3"
            return {"RepositoryType": kind, "Location": self._packages.location(code, host)}
        # The repository without its tag; a colon before the last slash is a registry's port. A local image doesn't
        # have a registry's digest, so the engine's id is used instead.
        head, slash, tail = code.image.uri.partition("@")[0].rpartition("/")
        resolved = f"{head}{slash}{tail.partition(':')[0]}@{code.image.id}"
        return {"RepositoryType": "ECR", "ImageUri": code.image.uri, "ResolvedImageUri": resolved}

    async def _get_function_configuration(self, call: Call) -> Answer:
        return self._functions.resolve(call.name, call.qualifier).function.document(call.qualifier)

    async def _update_function_configuration(self, call: Call) -> Answer:
        answer = self._functions.update_configuration(call.unqualified, call.members)
        self._prepare(self._functions.entry(call.name).latest)
        self._retire()
        return answer

    async def _delete_function(self, call: Call) -> None:
        self._functions.delete(call.name, call.qualifier)
        self._retire()

    async def _publish_version(self, call: Call) -> Answer:
        entry, request = self._functions.entry(call.unqualified), call.members
        check_revision(request, entry.latest.revision_id)
        digest = request.get("CodeSha256")
        if digest and digest != entry.latest.code.sha256:
            raise invalid(
                f"CodeSHA256 ({digest}) is different from current CodeSHA256 in $LATEST ({entry.latest.code.sha256}). "
                "Please try again with the CodeSHA256 in $LATEST."
            )
        version = self._functions.publish(entry, str(request.get("Description") or ""))
        return version.document(version.version)

    async def _list_versions_by_function(self, call: Call) -> Answer:
        versions = self._functions.entry(call.name).all_versions()
        return call.page("Versions", {_order(v.version): v.listed(v.version) for v in versions})


def _order(version: str) -> str:
    return version.rjust(20) if version.isdigit() else ""

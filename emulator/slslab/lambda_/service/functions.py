"""Operations on functions: create, read, update, delete; versions and aliases."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from slslab.lambda_.archives import Archives
from slslab.lambda_.functions import Functions
from slslab.lambda_.invocation import InvocationService
from slslab.lambda_.packages import Code, Image, Packages
from slslab.lambda_.service.call import Call, Handler

Answer = Mapping[str, Any]


class FunctionOperations:
    """The operations on functions of one emulator."""

    def __init__(
        self, functions: Functions, packages: Packages, archives: Archives, service: InvocationService
    ) -> None:
        self._functions = functions
        self._packages = packages
        self._archives = archives
        self._service = service

    def handlers(self) -> dict[str, Handler]:
        """Return what answers each operation."""
        return {
            "CreateFunction": self._create,
            "ListFunctions": self._list,
            "GetFunction": self._get,
            "DeleteFunction": self._delete,
            "UpdateFunctionCode": self._update_code,
            "GetFunctionConfiguration": self._get_configuration,
            "UpdateFunctionConfiguration": self._update_configuration,
            "PublishVersion": self._publish,
            "ListVersionsByFunction": self._versions,
            "CreateAlias": self._create_alias,
            "ListAliases": self._aliases,
            "GetAlias": self._get_alias,
            "UpdateAlias": self._update_alias,
            "DeleteAlias": self._delete_alias,
        }

    async def _create(self, call: Call) -> Answer:
        name, _ = self._functions.check_creation(call.members)
        async with self._stored(name, call.members.get("Code") or {}) as code:
            answer = self._functions.create(call.members, code)
            self._service.prepare(self._functions.entry(name).latest)
            return answer

    async def _update_code(self, call: Call) -> Answer:
        self._functions.entry(call.unqualified)  # raises before its code is stored
        async with self._stored(call.name, call.members) as code:
            answer = self._functions.update_code(call.name, call.members, code)
            self._service.pool.retire_outdated()
        return answer

    @asynccontextmanager
    async def _stored(self, name: str, code: Mapping[str, Any]) -> AsyncIterator[Code]:
        stored = await asyncio.wrap_future(self._packages.start_storing(name, code))
        try:
            yield stored
        finally:
            self._packages.release(stored)
            self._service.remove_unused_packages()

    async def _list(self, call: Call) -> Answer:
        every = call.members.get("FunctionVersion") == "ALL"
        documents: dict[str, dict[str, Any]] = {}
        for entry in self._functions.entries():
            for function in entry.all_versions() if every else [entry.latest]:
                key = f"{function.name} {_order(function.version)}"
                documents[key] = function.summary(function.version if every else None)
        return call.page("Functions", documents)

    async def _get(self, call: Call) -> Answer:
        target = self._functions.resolve(call.name, call.qualifier)
        entry = self._functions.entry(call.name)
        document: dict[str, Any] = {"Configuration": target.document(), "Code": self._location(call)}
        if call.qualifier is not None:
            return document
        if entry.tags:
            document["Tags"] = entry.tags
        if entry.reserved is not None:
            document["Concurrency"] = {"ReservedConcurrentExecutions": entry.reserved}
        return document

    def _location(self, call: Call) -> dict[str, str]:
        """Return the API's FunctionCodeLocation; a directory that is used in place is a repository of its own kind."""
        code = self._functions.resolve(call.name, call.qualifier).function.code
        if code.image is not None:
            return _image_location(code.image)
        kind = "Local" if code.archive is None else "S3"
        return {"RepositoryType": kind, "Location": self._archives.location(code, call.request)}

    async def _get_configuration(self, call: Call) -> Answer:
        return self._functions.resolve(call.name, call.qualifier).document()

    async def _update_configuration(self, call: Call) -> Answer:
        answer = self._functions.update_configuration(call.unqualified, call.members)
        self._service.prepare(self._functions.entry(call.name).latest)
        self._service.pool.retire_outdated()
        return answer

    async def _delete(self, call: Call) -> None:
        self._functions.delete(call.name, call.qualifier)
        self._service.retire()

    async def _publish(self, call: Call) -> Answer:
        return self._functions.publish(call.unqualified, call.members)

    async def _versions(self, call: Call) -> Answer:
        versions = self._functions.entry(call.name).all_versions()
        return call.page("Versions", {_order(v.version): v.summary(v.version) for v in versions})

    async def _create_alias(self, call: Call) -> Answer:
        return self._functions.create_alias(call.unqualified, call.members).document()

    async def _update_alias(self, call: Call) -> Answer:
        return self._functions.update_alias(call.unqualified, call.members).document()

    async def _get_alias(self, call: Call) -> Answer:
        return self._functions.alias(call.name, call.members["Name"]).document()

    async def _aliases(self, call: Call) -> Answer:
        version = call.members.get("FunctionVersion")
        aliases = self._functions.entry(call.name).aliases.values()
        return call.page("Aliases", {a.name: a.document() for a in aliases if version in (None, a.version)})

    async def _delete_alias(self, call: Call) -> None:
        # An alias that does not exist is deleted already.
        entry = self._functions.entry(call.name)
        if entry.aliases.pop(call.members["Name"], None) is not None:
            entry.forget(call.members["Name"])


def _order(version: str) -> str:
    return version.rjust(20) if version.isdigit() else ""


def _image_location(image: Image) -> dict[str, str]:
    # The repository without its tag; a colon before the last slash is a registry's port. An image that is only here has
    # no digest of a registry, so the engine's id stands for it.
    head, slash, tail = image.uri.partition("@")[0].rpartition("/")
    return {
        "RepositoryType": "ECR",
        "ImageUri": image.uri,
        "ResolvedImageUri": f"{head}{slash}{tail.partition(':')[0]}@{image.id}",
    }

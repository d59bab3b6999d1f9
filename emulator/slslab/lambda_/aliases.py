"""Aliases: names for versions of a function.

https://docs.aws.amazon.com/lambda/latest/dg/configuration-aliases.html
"""

import uuid
from collections.abc import Mapping
from typing import Any

from slslab.aws.errors import conflict, invalid, missing
from slslab.lambda_.api import Answer, Call, Operations
from slslab.lambda_.attachments import Alias
from slslab.lambda_.functions import Entry, Functions
from slslab.lambda_.policies import check_revision
from slslab.lambda_.references import LATEST, function_arn


class Aliases(Operations):
    """The aliases of one emulator's functions."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def create(self, name: str, request: Mapping[str, Any]) -> Alias:
        """Carry out CreateAlias."""
        entry, alias = self._functions.entry(name, str(request["FunctionVersion"])), str(request["Name"])
        if alias in entry.aliases:
            raise conflict(f"Alias already exists: {function_arn(name, alias)}")
        return self._put(entry, Alias(name, alias, LATEST, "", ""), request)

    def update(self, name: str, request: Mapping[str, Any]) -> Alias:
        """Carry out UpdateAlias: settings that the request doesn't name stay."""
        entry, alias = self._functions.entry(name), str(request["Name"])
        if alias not in entry.aliases:
            raise missing(f"Alias not found: {function_arn(name, alias)}")
        check_revision(request, entry.aliases[alias].revision_id)
        return self._put(entry, entry.aliases[alias], request)

    def get(self, name: str, alias: str) -> Alias:
        """Carry out GetAlias."""
        entry = self._functions.entry(name)
        if alias not in entry.aliases:
            raise missing(f"Cannot find alias arn: {function_arn(name, alias)}")
        return entry.aliases[alias]

    async def _create_alias(self, call: Call) -> Answer:
        return self.create(call.unqualified, call.members).document()

    async def _update_alias(self, call: Call) -> Answer:
        return self.update(call.unqualified, call.members).document()

    async def _get_alias(self, call: Call) -> Answer:
        return self.get(call.name, call.members["Name"]).document()

    async def _list_aliases(self, call: Call) -> Answer:
        version = call.members.get("FunctionVersion")
        aliases = self._functions.entry(call.name).aliases.values()
        return call.page("Aliases", {a.name: a.document() for a in aliases if version in (None, a.version)})

    async def _delete_alias(self, call: Call) -> None:
        # An alias that does not exist is deleted already.
        entry = self._functions.entry(call.name)
        if entry.aliases.pop(call.members["Name"], None) is not None:
            entry.forget(call.members["Name"])

    def _put(self, entry: Entry, before: Alias, request: Mapping[str, Any]) -> Alias:
        version = str(request.get("FunctionVersion") or before.version)
        routing = request.get("RoutingConfig")
        weights = before.weights if routing is None else routing.get("AdditionalVersionWeights") or {}
        if len(weights) > 1:
            raise invalid("Number of items in AdditionalVersionWeights cannot be greater than 1")
        if version in weights:
            raise invalid(
                f"Invalid function version {version}. Function version {version} is already included in routing "
                "configuration."
            )
        if version == LATEST and weights:
            raise invalid("$LATEST is not supported for an alias pointing to more than 1 version", typed=False)
        for named in (version, *weights):
            self._functions.version(entry, named, named)
        description = str(request.get("Description", before.description))
        alias = Alias(before.function, before.name, version, description, str(uuid.uuid4()), dict(weights))
        entry.aliases[alias.name] = alias
        return alias

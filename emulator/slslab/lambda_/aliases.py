"""Aliases: names for versions of a function.

https://docs.aws.amazon.com/lambda/latest/dg/configuration-aliases.html
"""

import uuid
from collections.abc import Mapping
from typing import Any

from slslab.aws.errors import conflict, invalid, missing
from slslab.lambda_.api import Answer, Call
from slslab.lambda_.attachments import Alias
from slslab.lambda_.functions import Entry, FunctionResource, check_revision
from slslab.lambda_.references import LATEST, function_arn


class Aliases(FunctionResource):
    """The aliases of one emulator's functions."""

    async def _create_alias(self, call: Call) -> Answer:
        name, alias = call.unqualified, call.members["Name"]
        entry = self._functions.entry(name, call.members["FunctionVersion"])
        if alias in entry.aliases:
            raise conflict(f"Alias already exists: {function_arn(name, alias)}")
        return self._put(entry, Alias(name, alias, LATEST, "", ""), call.members)

    async def _update_alias(self, call: Call) -> Answer:
        """Settings that the request doesn't name stay."""
        name, alias = call.unqualified, call.members["Name"]
        entry = self._functions.entry(name)
        if alias not in entry.aliases:
            raise missing(f"Alias not found: {function_arn(name, alias)}")
        check_revision(call.members, entry.aliases[alias].revision_id)
        return self._put(entry, entry.aliases[alias], call.members)

    async def _get_alias(self, call: Call) -> Answer:
        alias = call.members["Name"]
        entry = self._functions.entry(call.name)
        if alias not in entry.aliases:
            raise missing(f"Cannot find alias arn: {function_arn(call.name, alias)}")
        return entry.aliases[alias].document()

    async def _list_aliases(self, call: Call) -> Answer:
        version = call.members.get("FunctionVersion")
        aliases = self._functions.entry(call.name).aliases.values()
        return call.page("Aliases", {a.name: a.document() for a in aliases if version in (None, a.version)})

    async def _delete_alias(self, call: Call) -> None:
        # An alias that does not exist is deleted already.
        entry = self._functions.entry(call.name)
        if entry.aliases.pop(call.members["Name"], None) is not None:
            entry.forget(call.members["Name"])

    def _put(self, entry: Entry, before: Alias, request: Mapping[str, Any]) -> Answer:
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
        return alias.document()

"""Aliases: names for versions of a function.

https://docs.aws.amazon.com/lambda/latest/dg/configuration-aliases.html
"""

import uuid
from collections.abc import Mapping
from typing import Any

from slslab.aws.errors import conflict, invalid, missing
from slslab.lambda_.api import Answer, Call
from slslab.lambda_.functions import Entry, FunctionResource, check_revision, weights
from slslab.lambda_.references import LATEST, function_arn


class Aliases(FunctionResource):
    """The aliases of one emulator's functions."""

    async def _create_alias(self, call: Call) -> Answer:
        name, alias = call.unqualified, call.members["Name"]
        entry = self._functions.entry(name, call.members["FunctionVersion"])
        if alias in entry.aliases:
            raise conflict(f"Alias already exists: {function_arn(name, alias)}")
        new = {"AliasArn": function_arn(name, alias), "Name": alias, "FunctionVersion": LATEST, "Description": ""}
        return self._put(entry, new, call.members)

    async def _update_alias(self, call: Call) -> Answer:
        """Settings that the request doesn't name stay."""
        name, alias = call.unqualified, call.members["Name"]
        entry = self._functions.entry(name)
        if alias not in entry.aliases:
            raise missing(f"Alias not found: {function_arn(name, alias)}")
        check_revision(call.members, entry.aliases[alias]["RevisionId"])
        return self._put(entry, entry.aliases[alias], call.members)

    async def _get_alias(self, call: Call) -> Answer:
        alias = call.members["Name"]
        entry = self._functions.entry(call.name)
        if alias not in entry.aliases:
            raise missing(f"Cannot find alias arn: {function_arn(call.name, alias)}")
        return entry.aliases[alias]

    async def _list_aliases(self, call: Call) -> Answer:
        version = call.members.get("FunctionVersion")
        aliases = self._functions.entry(call.name).aliases.values()
        return call.page("Aliases", {a["Name"]: a for a in aliases if version in (None, a["FunctionVersion"])})

    async def _delete_alias(self, call: Call) -> None:
        # An alias that does not exist is deleted already.
        entry = self._functions.entry(call.name)
        if entry.aliases.pop(call.members["Name"], None) is not None:
            entry.forget(call.members["Name"])

    def _put(self, entry: Entry, before: dict[str, Any], request: Mapping[str, Any]) -> Answer:
        version = str(request.get("FunctionVersion") or before["FunctionVersion"])
        shares = weights({**before, **request})
        if len(shares) > 1:
            raise invalid("Number of items in AdditionalVersionWeights cannot be greater than 1")
        if version in shares:
            raise invalid(
                f"Invalid function version {version}. Function version {version} is already included in routing "
                "configuration."
            )
        if version == LATEST and shares:
            raise invalid("$LATEST is not supported for an alias pointing to more than 1 version", typed=False)
        for named in (version, *shares):
            self._functions.version(entry, named, named)
        alias = {
            **before,
            "FunctionVersion": version,
            "Description": str(request.get("Description", before["Description"])),
            "RevisionId": str(uuid.uuid4()),
            "RoutingConfig": {"AdditionalVersionWeights": shares},
        }
        if not shares:
            del alias["RoutingConfig"]
        entry.aliases[alias["Name"]] = alias
        return alias

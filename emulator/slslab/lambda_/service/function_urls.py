"""Operations on function URLs.

https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunctionUrlConfig.html; answers and errors as AWS recorded them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slslab.aws.arns import function_arn
from slslab.aws.errors import ServiceError, conflict, missing
from slslab.lambda_.configuration import LATEST
from slslab.lambda_.function_urls import FunctionUrl
from slslab.lambda_.functions import Entry, Functions
from slslab.lambda_.layer_versions import NO_RESOURCE
from slslab.lambda_.service.call import Call, Handler

Answer = Mapping[str, Any]


class FunctionUrlOperations:
    """The operations on function URLs of one emulator."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def handlers(self) -> dict[str, Handler]:
        """Return what answers each operation."""
        return {
            "CreateFunctionUrlConfig": self._create,
            "GetFunctionUrlConfig": self._get,
            "UpdateFunctionUrlConfig": self._update,
            "DeleteFunctionUrlConfig": self._delete,
            "ListFunctionUrlConfigs": self._list,
        }

    async def _create(self, call: Call) -> Answer:
        entry, qualifier = self._target(call)
        arn = function_arn(entry.latest.name, qualifier)
        if (qualifier or LATEST) in entry.urls:
            raise conflict(
                f"Failed to create function url config for [functionArn = {arn}]. Error message:  FunctionUrlConfig "
                "exists for this Lambda function"
            )
        url = entry.urls[qualifier or LATEST] = FunctionUrl.of(arn, call.members)
        return url.document(_host(call))

    async def _get(self, call: Call) -> Answer:
        entry, qualifier = self._configured(call)
        return entry.urls[qualifier].listed(_host(call))

    async def _update(self, call: Call) -> Answer:
        self._target(call)
        entry, qualifier = self._configured(call)
        old, given = entry.urls[qualifier], call.members
        url = FunctionUrl.of(
            old.arn, {"AuthType": old.auth_type, "Cors": old.cors, "InvokeMode": old.invoke_mode} | given
        )
        url = entry.urls[qualifier] = replace(url, id=old.id, created=old.created)
        return url.document(_host(call)) | {"LastModifiedTime": url.modified}

    async def _delete(self, call: Call) -> None:
        entry, qualifier = self._configured(call)
        del entry.urls[qualifier]

    async def _list(self, call: Call) -> Answer:
        if not self._functions.exists(call.name):
            raise missing("Function does not exist")
        urls = self._functions.entry(call.name).urls
        return call.page("FunctionUrlConfigs", {key: url.listed(_host(call)) for key, url in urls.items()})

    def _target(self, call: Call) -> tuple[Entry, str | None]:
        try:
            target = self._functions.resolve(call.name, call.qualifier)
        except ServiceError as error:
            raise missing("Function does not exist") if error.status == 404 else error from error
        return self._functions.entry(call.name), target.qualifier

    def _configured(self, call: Call) -> tuple[Entry, str]:
        """Return the function, and the key of its URL; the URL of an alias that is deleted stays (recorded)."""
        qualifier = call.qualifier or LATEST
        if not self._functions.exists(call.name) or qualifier not in self._functions.entry(call.name).urls:
            raise missing(NO_RESOURCE)
        return self._functions.entry(call.name), qualifier


def _host(call: Call) -> str:
    return str(call.request.headers["host"])

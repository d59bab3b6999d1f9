"""Operations on reserved concurrency, tags and the account."""

from slslab.aws.limits import Limits
from slslab.lambda_.api import Answer, Call, Operations
from slslab.lambda_.event_sources import EventSourceMappings
from slslab.lambda_.functions import Functions, add_tags

TOTAL_CODE_BYTES = 80_530_636_800


class SettingOperations(Operations):
    """Reserved concurrency, tags and the account's settings of one emulator."""

    def __init__(self, functions: Functions, mappings: EventSourceMappings, limits: Limits) -> None:
        self._functions = functions
        self._mappings = mappings
        self._limits = limits

    async def _put_function_concurrency(self, call: Call) -> Answer:
        self._functions.reserve(call.name, call.members, call.qualifier)
        return await self._get_function_concurrency(call)

    async def _get_function_concurrency(self, call: Call) -> Answer:
        reserved = self._functions.entry(call.name).reserved
        return {} if reserved is None else {"ReservedConcurrentExecutions": reserved}

    async def _delete_function_concurrency(self, call: Call) -> None:
        self._functions.entry(call.name).reserved = None

    async def _list_tags(self, call: Call) -> Answer:
        arn = call.members["Resource"]
        tags = self._mappings.tags(arn)
        return {"Tags": self._functions.tags(arn) if tags is None else tags}

    async def _tag_resource(self, call: Call) -> None:
        arn, given = call.members["Resource"], call.members["Tags"]
        if (tags := self._mappings.tags(arn)) is None:
            self._functions.tag(arn, given)
        else:
            add_tags(tags, given)

    async def _untag_resource(self, call: Call) -> None:
        arn, keys = call.members["Resource"], call.members["TagKeys"]
        if (tags := self._mappings.tags(arn)) is None:
            self._functions.untag(arn, keys)
        else:
            for key in keys:
                tags.pop(key, None)

    async def _get_account_settings(self, _call: Call) -> Answer:
        limits = self._limits
        return {
            "AccountLimit": {
                "TotalCodeSize": TOTAL_CODE_BYTES,
                "CodeSizeUnzipped": limits.unzipped_bytes,
                "CodeSizeZipped": limits.zipped_bytes,
                "ConcurrentExecutions": limits.account_concurrency,
                "UnreservedConcurrentExecutions": limits.account_concurrency - self._functions.reserved_total(),
            },
            "AccountUsage": {
                "TotalCodeSize": sum(code.size for code in self._functions.codes()),
                "FunctionCount": len(self._functions.entries()),
            },
        }

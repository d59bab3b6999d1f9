"""Operations on reserved concurrency, tags and the account, and on code signing.

Terraform's provider reads a function's code signing after every creation. Answers and errors are as recorded from AWS,
unless a comment says otherwise.
"""

from collections.abc import Callable

from slslab.aws.errors import invalid
from slslab.lambda_.api import FUNCTIONS_ONLY, Answer, Call
from slslab.lambda_.event_sources import EventSourceMappings
from slslab.lambda_.functions import FunctionResource, Functions, check_tags
from slslab.lambda_.references import LATEST, parse

TOTAL_CODE_BYTES = 80_530_636_800


class SettingOperations(FunctionResource):
    """The settings of one emulator."""

    def __init__(self, functions: Functions, mappings: EventSourceMappings) -> None:
        super().__init__(functions)
        self._mappings = mappings

    async def _put_function_concurrency(self, call: Call) -> Answer:
        """AWS refuses every qualifier here, even $LATEST, which other operations accept as the function (recorded)."""
        if call.qualifier is not None:
            raise invalid(FUNCTIONS_ONLY)
        entry = self._functions.entry(call.name, LATEST)
        value: int = call.members["ReservedConcurrentExecutions"]
        others = self._functions.reserved_total() - (entry.reserved or 0)
        floor = self._functions.limits.unreserved_concurrency
        if self._functions.limits.account_concurrency - others - value < floor:
            raise invalid(
                "Specified ReservedConcurrentExecutions for function decreases account's "
                f"UnreservedConcurrentExecution below its minimum value of [{floor}].",
                typed=False,
            )
        if value != entry.reserved:
            entry.reserved = value
            entry.renew_revision_id()
        return {"ReservedConcurrentExecutions": value}

    async def _get_function_concurrency(self, call: Call) -> Answer:
        reserved = self._functions.entry(call.name).reserved
        return {} if reserved is None else {"ReservedConcurrentExecutions": reserved}

    async def _delete_function_concurrency(self, call: Call) -> None:
        self._functions.entry(call.name).reserved = None

    async def _list_tags(self, call: Call) -> Answer:
        return {"Tags": self._tagged(call)[0]}

    async def _tag_resource(self, call: Call) -> None:
        tags, revise = self._tagged(call)
        if not (added := call.members["Tags"]):
            raise invalid("An error occurred and the request cannot be processed.")
        check_tags(tags | added)
        tags |= added
        revise()

    async def _untag_resource(self, call: Call) -> None:
        """Missing keys are ignored."""
        tags, revise = self._tagged(call)
        for key in call.members["TagKeys"]:
            tags.pop(key, None)
        revise()

    def _tagged(self, call: Call) -> tuple[dict[str, str], Callable[[], None]]:
        """Return the tags of a mapping or a function, to read or change, and what to call after a change."""
        arn = call.members["Resource"]
        if (tags := self._mappings.tags(arn)) is not None:
            return tags, lambda: None
        reference = parse(arn)
        if reference.qualifier is not None:
            raise invalid("Tags on function aliases and versions are not supported. Please specify a function ARN.")
        entry = self._functions.entry(reference.name)
        return entry.tags, entry.renew_revision_id

    async def _get_account_settings(self, _call: Call) -> Answer:
        limits = self._functions.limits
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

    async def _get_function_code_signing_config(self, call: Call) -> Answer:
        self._functions.entry(call.name)
        return {}

"""What deployment tools read after they create a function: code signing, recursion, runtime updates, provisioning.

Terraform's provider reads code signing after every creation. Answers and errors are as recorded from AWS, unless a
comment says otherwise.
"""

from slslab.aws.errors import ServiceError, invalid, missing
from slslab.lambda_.api import Answer, Call, Operations
from slslab.lambda_.configuration import no_code_signing
from slslab.lambda_.functions import Functions, qualified
from slslab.lambda_.references import LATEST, function_arn


class DeploymentOperations(Operations):
    """These operations of one emulator. Code signing configurations and provisioned concurrency can't be created."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    async def _get_function_code_signing_config(self, call: Call) -> Answer:
        self._require_function(call)
        return {}

    async def _put_function_code_signing_config(self, call: Call) -> Answer:
        raise no_code_signing(call.members["CodeSigningConfigArn"])

    async def _delete_function_code_signing_config(self, call: Call) -> None:
        self._require_function(call)

    async def _list_code_signing_configs(self, _call: Call) -> Answer:
        return {"CodeSigningConfigs": []}

    async def _get_code_signing_config(self, call: Call) -> Answer:
        arn = call.members["CodeSigningConfigArn"]
        raise missing(f"The Lambda code signing configuration {arn} can not be found.")

    _update_code_signing_config = _delete_code_signing_config = _get_code_signing_config
    _list_functions_by_code_signing_config = _get_code_signing_config

    async def _get_function_recursion_config(self, call: Call) -> Answer:
        return {"RecursiveLoop": self._functions.entry(call.name).recursive_loop}

    async def _put_function_recursion_config(self, call: Call) -> Answer:
        self._functions.entry(call.name).recursive_loop = call.members["RecursiveLoop"]
        return await self._get_function_recursion_config(call)

    async def _get_runtime_management_config(self, call: Call) -> Answer:
        entry, qualifier = qualified(self._functions, call)
        return {
            "UpdateRuntimeOn": entry.runtime_updates.get(qualifier or LATEST, "Auto"),
            "FunctionArn": function_arn(entry.latest.name, qualifier),
            "RuntimeVersionArn": None,
        }

    async def _put_runtime_management_config(self, call: Call) -> Answer:
        entry, qualifier = qualified(self._functions, call)
        if call.members["UpdateRuntimeOn"] == "Manual" or "RuntimeVersionArn" in call.members:
            raise invalid(
                "slslab does not emulate versions of a runtime, so none can be kept: set UpdateRuntimeOn to Auto or "
                "FunctionUpdate."
            )
        entry.runtime_updates[qualifier or LATEST] = call.members["UpdateRuntimeOn"]
        return await self._get_runtime_management_config(call)

    async def _get_provisioned_concurrency_config(self, call: Call) -> Answer:
        self._provisionable(call, "The function resource provided must be an alias or a published version.")
        raise ServiceError(
            404,
            "ProvisionedConcurrencyConfigNotFoundException",
            "No Provisioned Concurrency Config found for this function",
        )

    async def _put_provisioned_concurrency_config(self, call: Call) -> Answer:
        self._provisionable(call, "Provisioned Concurrency Configs cannot be applied to unpublished function versions.")
        raise invalid(
            "slslab does not emulate provisioned concurrency: environments start on demand. Deploy without it."
        )

    async def _delete_provisioned_concurrency_config(self, call: Call) -> None:
        self._provisionable(call, "The function resource provided must be an alias or a published version.")

    async def _list_provisioned_concurrency_configs(self, call: Call) -> Answer:
        self._require_function(call)
        return {"ProvisionedConcurrencyConfigs": []}

    def _require_function(self, call: Call) -> None:
        self._functions.entry(call.name)

    def _provisionable(self, call: Call, refusal: str) -> None:
        """Raise an error unless a request names an alias or a version."""
        if qualified(self._functions, call)[1] in (None, LATEST):
            raise invalid(refusal)

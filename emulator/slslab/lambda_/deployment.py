"""What deployment tools read after they create a function: code signing, recursion, runtime updates, provisioning.

Terraform's provider reads code signing after every creation. Answers and errors are as recorded from AWS, unless a
comment says otherwise.
"""

from slslab.aws.arns import function_arn
from slslab.aws.errors import ServiceError, invalid, missing
from slslab.lambda_.call import Answer, Call, Handler
from slslab.lambda_.configuration import no_code_signing
from slslab.lambda_.functions import Functions, qualified
from slslab.lambda_.references import LATEST


class DeploymentOperations:
    """These operations of one emulator. Code signing configurations and provisioned concurrency can't be created."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def handlers(self) -> dict[str, Handler]:
        """Return the handler of each operation."""
        return {
            "GetFunctionCodeSigningConfig": self._function_code_signing,
            "PutFunctionCodeSigningConfig": self._put_function_code_signing,
            "DeleteFunctionCodeSigningConfig": self._delete_function_code_signing,
            "ListCodeSigningConfigs": self._code_signings,
            "GetCodeSigningConfig": self._no_code_signing,
            "UpdateCodeSigningConfig": self._no_code_signing,
            "DeleteCodeSigningConfig": self._no_code_signing,
            "ListFunctionsByCodeSigningConfig": self._no_code_signing,
            "GetFunctionRecursionConfig": self._recursion,
            "PutFunctionRecursionConfig": self._put_recursion,
            "GetRuntimeManagementConfig": self._runtime_management,
            "PutRuntimeManagementConfig": self._put_runtime_management,
            "GetProvisionedConcurrencyConfig": self._provisioned,
            "PutProvisionedConcurrencyConfig": self._put_provisioned,
            "DeleteProvisionedConcurrencyConfig": self._delete_provisioned,
            "ListProvisionedConcurrencyConfigs": self._list_provisioned,
        }

    async def _function_code_signing(self, call: Call) -> Answer:
        self._require_function(call)
        return {}

    async def _put_function_code_signing(self, call: Call) -> Answer:
        raise no_code_signing(call.members["CodeSigningConfigArn"])

    async def _delete_function_code_signing(self, call: Call) -> None:
        self._require_function(call)

    async def _code_signings(self, _call: Call) -> Answer:
        return {"CodeSigningConfigs": []}

    async def _no_code_signing(self, call: Call) -> Answer:
        arn = call.members["CodeSigningConfigArn"]
        raise missing(f"The Lambda code signing configuration {arn} can not be found.")

    async def _recursion(self, call: Call) -> Answer:
        return {"RecursiveLoop": self._functions.entry(call.name).recursive_loop}

    async def _put_recursion(self, call: Call) -> Answer:
        self._functions.entry(call.name).recursive_loop = call.members["RecursiveLoop"]
        return await self._recursion(call)

    async def _runtime_management(self, call: Call) -> Answer:
        entry, qualifier = qualified(self._functions, call)
        return {
            "UpdateRuntimeOn": entry.runtime_updates.get(qualifier or LATEST, "Auto"),
            "FunctionArn": function_arn(entry.latest.name, qualifier),
            "RuntimeVersionArn": None,
        }

    async def _put_runtime_management(self, call: Call) -> Answer:
        entry, qualifier = qualified(self._functions, call)
        if call.members["UpdateRuntimeOn"] == "Manual" or "RuntimeVersionArn" in call.members:
            raise invalid(
                "slslab does not emulate versions of a runtime, so none can be kept: set UpdateRuntimeOn to Auto or "
                "FunctionUpdate."
            )
        entry.runtime_updates[qualifier or LATEST] = call.members["UpdateRuntimeOn"]
        return await self._runtime_management(call)

    async def _provisioned(self, call: Call) -> Answer:
        self._provisionable(call, "The function resource provided must be an alias or a published version.")
        raise ServiceError(
            404,
            "ProvisionedConcurrencyConfigNotFoundException",
            "No Provisioned Concurrency Config found for this function",
        )

    async def _put_provisioned(self, call: Call) -> Answer:
        self._provisionable(call, "Provisioned Concurrency Configs cannot be applied to unpublished function versions.")
        raise invalid(
            "slslab does not emulate provisioned concurrency: environments start on demand. Deploy without it."
        )

    async def _delete_provisioned(self, call: Call) -> None:
        self._provisionable(call, "The function resource provided must be an alias or a published version.")

    async def _list_provisioned(self, call: Call) -> Answer:
        self._require_function(call)
        return {"ProvisionedConcurrencyConfigs": []}

    def _require_function(self, call: Call) -> None:
        self._functions.entry(call.name)

    def _provisionable(self, call: Call, refusal: str) -> None:
        """Raise an error unless a request names an alias or a version."""
        if qualified(self._functions, call)[1] in (None, LATEST):
            raise invalid(refusal)

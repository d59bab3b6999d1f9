"""A deployed function that has other memory sizes for a while, and its invocations."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from slslab.errors import HostError, RequestError, RunError
from slslab.predict.invocation import Request, match_requests
from slslab.report.formats import listed
from slslab.run.metrics import Records
from slslab.tune.estimates import Sample

OUT_OF_MEMORY, TIMED_OUT = "Runtime.OutOfMemory", "Sandbox.Timedout"
LATEST = "$LATEST"
# Returns the records of all invocations until now, and the requests of each function to S3 and SQS.
Read = Callable[[], tuple[Records, Mapping[str, Sequence[Request]]]]


@dataclass(frozen=True)
class Failed(Exception):
    """An invocation failed; `error_type` is Lambda's, and `message` the function's or Lambda's."""

    error_type: str
    message: str


class TunedFunction:
    """A function of an emulator, which has its own memory size again at the end; RequestError if Lambda refuses."""

    def __init__(self, client: Any, name: str, read: Read) -> None:
        self._client, self._read = client, read
        self.configuration = _configuration(client, name)
        self.name = str(self.configuration["FunctionName"])
        if self.configuration["Version"] != LATEST:
            raise RequestError(
                f"{name} is a version, and keeps its memory size.", f"tune the function itself: {self.name}."
            )
        self.memory_mb = int(self.configuration["MemorySize"])
        self.timeout_s = float(self.configuration["Timeout"])
        self._present_mb = self.memory_mb
        # The request ids of all invocations.
        self.made: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._present_mb != self.memory_mb:
            self.renew(self.memory_mb)

    def renew(self, memory_mb: int) -> None:
        """Give it a memory size; the next invocation is cold, also if it had this size before."""
        self._present_mb = memory_mb
        with _refusals("see the limits of the account: slslab limits."):
            self._client.update_function_configuration(FunctionName=self.name, MemorySize=memory_mb)

    def invoke(self, payload: Any) -> str:
        """Invoke it synchronously; return the request's id. Failed if the function failed."""
        with _refusals("let nothing else invoke it meanwhile, and see its concurrency: slslab limits."):
            answer = self._client.invoke(FunctionName=self.name, Payload=json.dumps(payload).encode())
        self.made.append(answer["ResponseMetadata"]["RequestId"])
        if "FunctionError" in answer:
            failure = json.loads(answer["Payload"].read())
            raise Failed(str(failure.get("errorType", "")), str(failure.get("errorMessage", "")))
        return self.made[-1]

    def samples(self, wanted: Sequence[str]) -> list[Sample]:
        """Return the invocations with these request ids, in this order; RunError if one wasn't recorded."""
        records, requests = self._read()
        own = [record for record in records if record["function"] == self.name]
        matched = match_requests(own, requests)
        found = {str(record["request_id"]): Sample(record, matched.get(place, ())) for place, record in enumerate(own)}
        if missing := [id_ for id_ in wanted if id_ not in found]:
            raise RunError(f"Invocation {missing[0]} of {self.name} wasn't recorded.", "see `slslab status`.")
        return [found[id_] for id_ in wanted]


@contextmanager
def _refusals(hint: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise RequestError(_message(error), hint) from error
    except BotoCoreError as error:
        raise HostError(f"The service doesn't answer: {error}", "see `slslab status`.") from error


def _configuration(client: Any, name: str) -> Mapping[str, Any]:
    if not name:
        raise RequestError("The function has no name.", "give the name of a deployed one, such as slslab tune hello.")
    deploy = "deploy a function first (docs/testing.md)."
    with _refusals(deploy):
        try:
            return dict(client.get_function_configuration(FunctionName=name))
        except ClientError as error:
            pages = client.get_paginator("list_functions").paginate()
            deployed = [function["FunctionName"] for page in pages for function in page["Functions"]]
            raise RequestError(_message(error), f"deployed are {listed(deployed)}." if deployed else deploy) from error


def _message(error: ClientError) -> str:
    return f"Lambda refused: {error.response['Error']['Message'].rstrip('.')}."

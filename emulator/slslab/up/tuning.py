"""Functions of the running service for `slslab tune`, and their records."""

from collections.abc import Mapping, Sequence
from typing import Any

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.aws.limits import lambda_limits
from slslab.errors import RequestError
from slslab.predict.invocation import Predictor, Request
from slslab.report.predictions import requests_of
from slslab.report.services import read_service
from slslab.run.directory import RunDirectory
from slslab.run.log import parse
from slslab.run.metrics import Records
from slslab.tune.function import TunedFunction
from slslab.up import embedded


class Service:
    """The running service. RequestError if nothing runs."""

    def __init__(self) -> None:
        directory, variables = embedded.recorded(), embedded.environment()
        if directory is None or variables is None:
            raise RequestError(
                "slslab is not up.", "start it with `slslab up --detach`, and deploy the function there."
            )
        pair = Pair.of(variables)
        assert pair is not None
        self.directory = RunDirectory(directory)
        self.about: Mapping[str, Any] = self.directory.service() or {}
        running = embedded.status() or {}
        self.largest_mb = int(running["limits"].get("memory_mb", vars(lambda_limits().memory_mb))["maximum"])
        self._client = aws_client("lambda", running["endpoints"]["lambda"], pair)
        self._offset = 0
        self._records: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []

    def function(self, name: str) -> TunedFunction:
        """Return a deployed function."""
        return TunedFunction(self._client, name, self._read)

    def predictor(self, function: str, kind: str | None) -> Predictor:
        """Return what predicts a function's invocations."""
        return read_service(self.directory, self.about, kind).predictor_of(function)

    def _read(self) -> tuple[Records, Mapping[str, Sequence[Request]]]:
        """Return all records and requests until now; of the log only what is new is read."""
        embedded.recorded()
        with self.directory.trace_log.open("rb") as log:
            log.seek(self._offset)
            lines, _, _ = log.read().rpartition(b"\n")
        self._offset += len(lines) + bool(lines)
        for line in lines.splitlines():
            record = parse(line, str(self.directory.trace_log))
            if record["record"] == "invocation":
                self._records.append(record)
            elif record["record"] == "event":
                self._events.append(record)
        return self._records, requests_of(self._events)

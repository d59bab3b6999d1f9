"""Functions of the running service for `slslab tune`: their records, and what earlier tunings measured."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.aws.limits import Range, lambda_limits
from slslab.errors import RequestError, RunError
from slslab.lambda_.packages import HOT_RELOAD_BUCKET
from slslab.predict.invocation import Predictor, Request
from slslab.run.directory import RunDirectory
from slslab.run.log import GrowingLog
from slslab.run.metrics import Records
from slslab.run.predictions import requests_of
from slslab.run.service import read_service
from slslab.tune.estimates import Measured
from slslab.tune.tuning import Payload, TunedFunction
from slslab.up import embedded

# What earlier tunings invoked, in the directory of the record.
TUNINGS = "tunings.jsonl"
# What a function does depends on these.
SETTINGS = (
    "CodeSha256", "Handler", "Runtime", "Environment", "Layers", "Timeout", "EphemeralStorage", "Architectures"
)  # fmt: skip


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
        self.memory_limit = Range(**running["limits"].get("memory_mb", vars(lambda_limits().memory_mb)))
        self._client = aws_client("lambda", running["endpoints"]["lambda"], pair)
        self._log = GrowingLog(self.directory.trace_log)

    def function(self, name: str) -> TunedFunction:
        """Return a deployed function."""
        return TunedFunction(self._client, name, self._read)

    def predictor(self, function: str, kind: str | None) -> Predictor:
        """Return what predicts a function's invocations."""
        return read_service(self.directory, self.about, kind).predictor_of(function)

    def _read(self) -> tuple[Records, Mapping[str, Sequence[Request]]]:
        """Return all records and requests until now; of the log only what is new is read."""
        embedded.recorded()
        self._log.read()
        invoked, events = ([r for r in self._log.records if r["record"] == kind] for kind in ("invocation", "event"))
        return invoked, requests_of(events)


class Ledger:
    """The sizes that earlier tunings measured of the same code and settings, with the same payloads."""

    def __init__(self, directory: Path, function: TunedFunction, payloads: Sequence[Payload]) -> None:
        self._path, self._function = directory / TUNINGS, function
        about = {name: function.configuration.get(name) for name in SETTINGS}
        payload = [(payload.weight, payload.event) for payload in payloads]
        self._key = sha256(json.dumps([function.name, about, payload], sort_keys=True).encode()).hexdigest()

    def measured(self) -> dict[int, Measured]:
        """Return the sizes. Code in a directory may change unseen, so its sizes never count.

        Lines that a killed tuning broke off are skipped, and sizes with invocations that the record lacks, too.
        """
        found = {}
        for line in self._text().splitlines():
            try:
                entry = json.loads(line)
                if entry["key"] == self._key and self._function.configuration["CodeSha256"] != HOT_RELOAD_BUCKET:
                    rounds = [self._function.samples(ids) for ids in entry["rounds"]]
                    cold = self._function.samples(entry["cold"])
                    found[entry["memory_mb"]] = Measured(entry["memory_mb"], [*rounds], cold)
            except (json.JSONDecodeError, RunError):
                continue
        return found

    def add(self, measured: Measured) -> None:
        """Keep which invocations measured a size."""
        rounds = [[sample.record["request_id"] for sample in round_] for round_ in measured.rounds]
        cold = [sample.record["request_id"] for sample in measured.cold]
        entry = {"key": self._key, "memory_mb": measured.memory_mb, "rounds": rounds, "cold": cold}
        torn = not f"\n{self._text()}".endswith("\n")
        with self._path.open("a") as file:
            file.write("\n" * torn + json.dumps(entry) + "\n")

    def _text(self) -> str:
        return self._path.read_text() if self._path.exists() else ""

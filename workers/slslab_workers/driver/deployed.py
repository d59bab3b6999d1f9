"""Run a plan on an exported template's stack with boto3 alone: on AWS, or at AWS_ENDPOINT_URL.

`slslab export sam` writes the template, and a script next to it that calls `main`.
"""

import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import botocore.exceptions

from slslab_workers.architecture import Architecture, Cloud, Deployed, RunFailed
from slslab_workers.channels.objects import aws_client, s3_client
from slslab_workers.driver.deployment import worker_function
from slslab_workers.plan import Plan

BUCKET = "SLSLAB_BUCKET"
# How much longer than its function's time-out a caller waits for an answer, s, because of the function's init.
PATIENCE_S = 60


def main(exported: Path) -> None:
    """Run the exported plan and exit: 0 on success, 1 on failure. Print the outcome as JSON on stdout and progress on
    stderr."""
    try:
        print(json.dumps(run(exported), indent=2))
    except RunFailed as error:
        worker = "" if error.worker is None else f" (worker {error.worker})"
        sys.exit(f"Error: {error.type}{worker}: {error.message}\n{error.log_tail}".rstrip())
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        sys.exit(f"Error: {error}\nHint: README.md next to this script lists what you need to set up first.")


def run(exported: Path) -> dict[str, Any]:
    """Run an exported plan, and return its outcome, with `counts` of the training protocol's messages that the driver
    itself sent or received.

    Each run has its own id, because queues, keys and executions are named after it.
    """
    counts: Counter[str] = Counter()

    def emit(event: Mapping[str, Any]) -> None:
        if not event["overhead"]:
            counts[event["op"]] += event["requests"]

    document = json.loads(exported.read_text())
    architecture: Architecture = EntryPoint("architecture", document["architecture"], "").load()
    plan = Plan.from_document(document["plan"])
    client = partial(_client, plan)
    # A worker's function knows all other addresses.
    function = worker_function(plan)
    first = document["function"]
    found = client("lambda").get_function_configuration(FunctionName=first)
    variables = {**os.environ, **found["Environment"]["Variables"]}
    machine = (
        found["FunctionArn"].replace(":lambda:", ":states:").replace(f":function:{first}", f":stateMachine:{function}")
    )
    cloud = Cloud(client, emit, variables, deployed=Deployed(function, variables[BUCKET], machine))
    plan = replace(plan, run=f"{plan.run}-{secrets.token_hex(2)}")
    outcome = architecture.drive(plan, cloud, _Lines())
    return {"schema": 1, "run": plan.run, "counts": counts, **asdict(outcome)}


def _client(plan: Plan, service: str) -> Any:
    if service == "s3":
        return s3_client()
    if service != "lambda":
        return aws_client(service)
    # A caller waits as long as a worker runs. A repeated request would start a second worker of the same rank.
    return aws_client(
        "lambda",
        read_timeout=plan.timeout + PATIENCE_S,
        retries={"total_max_attempts": 1},
        max_pool_connections=plan.workers + 1,
        tcp_keepalive=True,
    )


class _Lines:
    def report(self, stage: str, done: int, total: int) -> None:
        if done == total > 0:
            print(f"{stage}: {total}", file=sys.stderr)

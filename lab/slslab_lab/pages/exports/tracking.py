"""Runs in an MLflow tracking store."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from slslab.errors import HostError
from slslab.run.run import Run
from slslab_lab.pages.exports.finished import curves, figures, parameters, unix_ns, versions

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# The tag that identifies a run in the store.
TAG = "slslab.run"
# Limits of a server for one request (MLflow REST API, "Log Batch").
METRICS, OTHERS = 1000, 100
# MLflow's words for a run's ending.
STATUSES = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def write_tracking(runs: Sequence[Run], uri: str, experiment: str) -> list[dict[str, Any]]:
    """Write each run to an experiment of the store at `uri`: file:// for a folder, or any URI that MLflow accepts.

    Finished runs don't change, so a run that is already in the experiment stays as it is; an incomplete export is
    replaced. HostError if the store can't be written.
    """
    # Set before MLflow is imported. Otherwise it fetches a file from its makers' host and reports its use.
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    if urlsplit(uri).scheme == "file":
        # Needed for a folder since 3.7, since mlflow-skinny has no database.
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    # Report a missing server in seconds, not minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    try:
        client = MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(experiment)
        id_ = known.experiment_id if known is not None else client.create_experiment(experiment)
        return [_write_once(client, id_, run) for run in runs]
    except (MlflowException, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise HostError(
            f"MLflow cannot write to {uri}: {lines[0]}", "choose another --tracking-uri or --out."
        ) from error


def _write_once(client: "MlflowClient", experiment: str, run: Run) -> dict[str, Any]:
    for known in client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'"):
        if known.info.status != "RUNNING":
            return {"run": run.id, "mlflow_run": known.info.run_id, "state": "was there"}
        client.delete_run(known.info.run_id)
    return {"run": run.id, "mlflow_run": _write(client, experiment, run), "state": "written"}


def _write(client: "MlflowClient", experiment: str, run: Run) -> str:
    from mlflow.entities import Metric, Param, RunTag

    began, ended = (unix_ns(run, instant) // 1_000_000 for instant in run.span_ns())
    id_ = str(client.create_run(experiment, began, {TAG: run.id}, run.id).info.run_id)
    metrics = [Metric(name, value, ended, 0) for name, value in figures(run).items()]
    metrics += [
        Metric(name, value, when // 1_000_000, epoch)
        for name, points in curves(run).items()
        for epoch, value, when in points
    ]
    params = [Param(name, value) for name, value in parameters(run).items()]
    tags = [RunTag(name, value) for name, value in versions(run).items()]
    tags += [RunTag(f"slslab.{name}", str(run.summary()[name])) for name in ("architecture", "status")]
    for first in range(0, len(metrics), METRICS):
        client.log_batch(id_, metrics=metrics[first : first + METRICS])
    for first in range(0, max(len(params), len(tags)), OTHERS):
        client.log_batch(id_, params=params[first : first + OTHERS], tags=tags[first : first + OTHERS])
    for name in ("run.json", "plan.toml", "report.html"):
        if (path := run.directory.path / name).exists():
            client.log_artifact(id_, str(path))
    client.set_terminated(id_, STATUSES[run.summary()["status"]], ended)
    return id_

"""Make a complete plan from the command line's values, or from the file of a plan that was run before."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.predict.profiles.profile import profile_names
from slslab.run.bill import book_names
from slslab.run.directory import PLAN, new_id
from slslab.toml_files import read_toml, shown
from slslab_lab.runs.platforms import platform_values
from slslab_workers.architecture import LATER_OPTIONS, Architecture, architectures
from slslab_workers.faults.plan import FaultPlan
from slslab_workers.models import spec_of, to_document
from slslab_workers.plan import SCHEMA, Plan, PlanError, Value
from slslab_workers.training import datasets, fitting
from slslab_workers.training.datasets import Source

__all__ = ["architectures", "find_file", "load_plan", "make_plan", "read_plan_file", "settle"]

USUAL_BATCHES = (512, 24)
# The first of these batch sizes that gives each worker enough minibatches of a file's samples is used.
BATCH_SIZES, FEWEST_BATCHES = (64, 16, 4), 4
# What functions run in by default on each stack.
ENVIRONMENTS = {"embedded": "process", "compose": "docker"}


def make_plan(architecture: Architecture, values: Mapping[str, Any], options: Mapping[str, Value]) -> Plan:
    """Return a complete plan: what the command line gave, and the defaults of the model, data set and architecture.

    PlanError for an impossible value or option.
    """
    filled = {name: value for name, value in values.items() if value is not None}
    if "platform" in filled:
        filled["platform"] = find_file(filled["platform"], profile_names())
        filled = {**platform_values(filled["platform"]), **filled}
    dataset = filled["dataset"]
    source = datasets.find(dataset)
    batch_size, batches = usual_batches(
        source, filled.get("workers", Plan.workers), filled.get("early_stopping", Plan.early_stopping)
    )
    environment = ENVIRONMENTS[filled.get("stack", Plan.stack)]
    filled = {"batch_size": batch_size, "batches": batches, "environment": environment, **filled}
    if "prices" in filled:
        filled["prices"] = find_file(filled["prices"], book_names())
    if "faults" in filled:
        filled["faults"] = read_toml(filled["faults"], "fault plan", ())
    check_options(architecture, options)
    released: dict[str, Value] = {}
    if filled.get("as_released"):
        released = {option.name: option.released for option in architecture.options if option.released is not None}
    chosen = architecture.complete({**released, **options})
    model = fitting.fit(filled.pop("model", None), dataset, source, chosen)
    plan = Plan(
        run=new_id(architecture.name, model.name),
        architecture=architecture.name,
        model=model.name,
        model_spec=to_document(model),
        options=chosen,
        **{"memory_mb": model.memory_mb, **filled},
    )
    fitting.check_choices(plan, source)
    check_faults(architecture, plan)
    return plan


def usual_batches(source: Source, workers: int, early_stopping: bool) -> tuple[int, int]:
    """Return the batch size and each worker's minibatches per epoch; these cover all samples if counted."""
    if source.batches or not source.samples:
        return source.batches or USUAL_BATCHES
    samples = source.samples * 9 // 10 if early_stopping else source.samples
    size = next((size for size in BATCH_SIZES if samples >= FEWEST_BATCHES * workers * size), 1)
    return size, max(1, samples // (workers * size))


def load_plan(path: Path, book: str | None = None) -> Plan:
    """Return the plan in a file, or in a run's directory, with a new run id, and another price book if one is given.

    RequestError as `read_plan_file` raises it; PlanError as `fitting.check` does.
    """
    plan = read_plan_file(path)
    fitting.check(plan)
    prices = plan.prices if book is None else find_file(book, book_names())
    return replace(plan, run=new_id(plan.architecture, plan.model), prices=prices)


def read_plan_file(path: Path) -> Plan:
    """Return the plan in a file, or in a run's directory.

    RequestError for a file that isn't a plan, or lacks anything that a run needs, because defaults may have changed
    since its version; `LATER_OPTIONS` are filled in.
    """
    path = path / PLAN if path.is_dir() else path
    document = read_toml(path, "plan", ())
    known, name = architectures(), str(document.get("architecture", ""))
    if name not in known:
        raise RequestError(
            f"The architecture {shown(repr(name))} of the plan {path} is not installed.",
            f"install it; installed are {', '.join(known)}.",
        )
    options = document.get("options", {})
    if not isinstance(options, dict):
        raise RequestError(f"[options] in {path} must be a table.", "write them under [options].")
    needed = ["schema", *(entry.name for entry in fields(Plan) if entry.default is not None)]
    missing = [entry for entry in needed if entry not in document]
    expected = [option.name for option in known[name].options if option.name not in LATER_OPTIONS]
    missing += [f"options.{option}" for option in expected if option not in options]
    if missing:
        raise RequestError(
            f"The plan {path} cannot be run again, because it has no {', '.join(missing)}.",
            f"add them, with schema = {SCHEMA}, or run the architecture: slslab run {name} --help",
        )
    try:
        plan = Plan.from_document(document | {"options": known[name].complete(options)})
        check_options(known[name], plan.options)
        check_faults(known[name], plan)
        spec_of(plan)
    except PlanError as error:
        message = f"The plan {path} cannot be carried out: {shown(error.message)}"
        raise RequestError(message, shown(error.hint)) from error
    return plan


def find_file(name: str, built_in: Sequence[str]) -> str:
    """Return a built-in name, or else the absolute path of a file, so that a later run finds it."""
    return str(Path(name).absolute()) if name not in built_in and Path(name).is_file() else name


def settle(plan: Plan, automatic: Mapping[str, str]) -> Plan:
    """Return the plan with each option `auto` replaced by its value on the system that runs it."""
    became = {name: value for name, value in automatic.items() if plan.options.get(name) == "auto"}
    return replace(plan, options={**plan.options, **became})


def check_options(architecture: Architecture, options: Mapping[str, Value]) -> None:
    """Raise PlanError for an option that the architecture doesn't have, or with an impossible value."""
    known = {option.name: option for option in architecture.options}
    for name, value in options.items():
        if name not in known:
            raise PlanError(
                f"The architecture {architecture.name} has no option {name!r}.",
                f"its options are {', '.join(known)}." if known else "it has none.",
            )
        known[name].check(value)


def check_faults(architecture: Architecture, plan: Plan) -> None:
    """Raise PlanError for an impossible fault, or one outside the plan."""
    if plan.faults is None:
        return
    if plan.stack != "embedded":
        raise PlanError("Faults can only be injected into the embedded stack.", "leave out --stack.")
    needed = architecture.requirements(plan)
    FaultPlan.from_document(plan.faults).check(
        plan, instances=needed.instances is not None, databases=needed.tensor_databases, queue=bool(needed.queue)
    )

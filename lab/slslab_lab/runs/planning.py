"""Make a complete plan from the command line's values, or from the file of a plan that was run before."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.run.bill import book_names
from slslab.run.directory import PLAN, new_id
from slslab.toml_files import read_toml, shown
from slslab_lab.papers.paper import load_paper
from slslab_workers.architecture import Architecture, architectures
from slslab_workers.faults.plan import FaultPlan
from slslab_workers.models import ROW_MODELS, spec
from slslab_workers.plan import SCHEMA, Plan, PlanError, Value
from slslab_workers.training import rows
from slslab_workers.training.algorithms import ALGORITHM, CLUSTERS

__all__ = ["architectures", "find_book", "load_plan", "make_plan", "read_plan_file", "refused_plans", "settle"]

BATCHES = {"digits": (64, 5), "mnist5k": (64, 15), "breast-cancer": (16, 7)}

USUAL_BATCHES = (512, 24)
USUAL_MODELS = {"digits": "lenet", "mnist5k": "lenet"}

# Whose memory sizes `--memory paper` takes.
PAPER, TABLE = "barrak-2025", "table2"
# What functions run in, by the stack, unless it is chosen.
ENVIRONMENTS = {"embedded": "process", "compose": "docker"}


@contextmanager
def refused_plans() -> Iterator[None]:
    """Raise RequestError for a plan that cannot be carried out (PlanError)."""
    try:
        yield
    except PlanError as error:
        raise RequestError(error.message, error.hint) from error


def make_plan(architecture: Architecture, values: Mapping[str, Any], options: Mapping[str, Value]) -> Plan:
    """Return a complete plan: what the command line gave, and the defaults of the model, data set and architecture.

    PlanError for a value or an option that cannot be.
    """
    filled = {name: value for name, value in values.items() if value is not None}
    dataset = filled["dataset"]
    usual = "lr" if rows.are_in(dataset) else USUAL_MODELS.get(dataset, "mobilenet")
    batch_size, batches = BATCHES.get(dataset, USUAL_BATCHES)
    filled.setdefault("batch_size", batch_size)
    filled.setdefault("batches", batches)
    filled.setdefault("environment", ENVIRONMENTS[filled.get("stack", Plan.stack)])
    if "prices" in filled:
        filled["prices"] = find_book(filled["prices"])
    if "faults" in filled:
        filled["faults"] = read_toml(filled["faults"], "fault plan", (), RequestError)
    memory = filled.pop("memory", None)
    check_options(architecture, options)
    released: dict[str, Value] = {}
    if filled.get("as_released"):
        released = {option.name: option.released for option in architecture.options if option.released is not None}
    chosen = architecture.complete({**released, **options})
    model = filled["model"] = wide_enough(filled.get("model", usual), dataset, chosen)
    plan = Plan(
        run=new_id(architecture.name, model),
        architecture=architecture.name,
        memory_mb=memory_of(memory, model, architecture.name),
        options=chosen,
        **filled,
    )
    check_faults(architecture, plan)
    return plan


def wide_enough(model: str, dataset: str, options: Mapping[str, Value]) -> str:
    """Return a model's name with the number of features that the data set's rows have, if it takes rows; PlanError if
    the data set cannot be used, or has images, or the architecture cannot train the model."""
    if model not in ROW_MODELS:
        return model
    if not rows.are_in(dataset):
        raise PlanError(
            f"The model {model} takes rows of features, and the data set {dataset} has none.",
            f"choose --dataset {', '.join(rows.NAMES)}.",
        )
    clusters = ""
    if model == "kmeans":
        if options.get(ALGORITHM.name) != "em":
            raise PlanError("k-means is trained by EM.", "choose allreduce or scatterreduce with --algorithm em.")
        clusters = f"{options[CLUSTERS.name]}x"
    return f"{model}-{clusters}{rows.features(dataset)}"


def load_plan(path: Path) -> Plan:
    """Return the plan in a file, or in a run's directory, as a run of its own: with a new id.

    RequestError as `read_plan_file` raises it.
    """
    plan = read_plan_file(path)
    return replace(plan, run=new_id(plan.architecture, plan.model))


def read_plan_file(path: Path) -> Plan:
    """Return the plan in a file, or in a run's directory.

    RequestError for a file that is not a plan, or that leaves out anything that a run needs: what its version took by
    default may not be what this one takes.
    """
    path = path / PLAN if path.is_dir() else path
    document = read_toml(path, "plan", (), RequestError)
    known, name = architectures(), str(document.get("architecture", ""))
    if name not in known:
        raise RequestError(
            f"The plan {path} is of architecture {shown(repr(name))}, which is not installed.",
            f"those that are installed are {', '.join(known)}.",
        )
    options = document.get("options", {})
    if not isinstance(options, dict):
        raise RequestError(f"The plan {path} is wrong at options: it is no table.", "write them under [options].")
    needed = ["schema", *(entry.name for entry in fields(Plan) if entry.default is not None)]
    missing = [entry for entry in needed if entry not in document]
    missing += [f"options.{option.name}" for option in known[name].options if option.name not in options]
    if missing:
        raise RequestError(
            f"The plan {path} cannot be run again, because it has no {', '.join(missing)}.",
            f"add them, with schema = {SCHEMA}, or run the architecture: slslab run {name} --help",
        )
    try:
        plan = Plan.from_document(document)
        check_options(known[name], plan.options)
        check_faults(known[name], plan)
    except PlanError as error:
        message = f"The plan {path} cannot be carried out: {shown(error.message)}"
        raise RequestError(message, shown(error.hint)) from error
    return plan


def find_book(name: str) -> str:
    """Return the name of a built-in price book, or the absolute path of another, by which a later run finds it."""
    return str(Path(name).absolute()) if name not in book_names() and Path(name).exists() else name


def settle(plan: Plan, automatic: Mapping[str, str]) -> Plan:
    """Return the plan with what each option `auto` becomes on the system that runs it."""
    became = {name: value for name, value in automatic.items() if plan.options.get(name) == "auto"}
    return replace(plan, options={**plan.options, **became})


def check_options(architecture: Architecture, options: Mapping[str, Value]) -> None:
    """Raise PlanError for an option that the architecture does not have, or that cannot have its value."""
    known = {option.name: option for option in architecture.options}
    for name, value in options.items():
        if name not in known:
            raise PlanError(
                f"The architecture {architecture.name} has no option {name!r}.",
                f"its options are {', '.join(known)}." if known else "it has none.",
            )
        known[name].check(value)


def check_faults(architecture: Architecture, plan: Plan) -> None:
    """Raise PlanError for a fault that cannot be, or whose place is not in the plan."""
    if plan.faults is None:
        return
    if plan.stack != "embedded":
        raise PlanError("Faults are injected into the embedded stack alone.", "leave out --stack.")
    needed = architecture.requirements(plan)
    FaultPlan.from_document(plan.faults).check(
        plan, instances=needed.instances is not None, databases=needed.tensor_databases, queue=bool(needed.queue)
    )


def memory_of(memory: str | None, model: str, architecture: str) -> int:
    """Return the memory size that `--memory` names, MB; PlanError if it is not a size."""
    known = spec(model)
    if memory is None:
        return known.memory_mb
    if memory == "paper":
        for row in load_paper(PAPER).table(TABLE).rows:
            inputs = row.inputs.get("architecture"), row.inputs.get("model")
            if inputs == (architecture, model) and "memory_mb" in row.published:
                return int(row.published["memory_mb"])
        raise PlanError(
            f"The paper gives no memory size for {architecture} with {model}.",
            "Table 2 has mobilenet and resnet18; else give --memory in MB.",
        )
    if not (memory.isdecimal() and len(memory) < 10):
        raise PlanError(f"--memory {memory[:40]} is not a size.", "give MB, such as --memory 3008, or `paper`.")
    return int(memory)

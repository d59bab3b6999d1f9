"""What `slslab export sam` writes: templates, code, image, driver, and a README that begins with the cost."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import yaml

from slslab.errors import RequestError
from slslab.report.summaries import headline, range_note, replayed
from slslab.run.bill import load_book
from slslab.run.directory import DOCUMENT, PLAN, RunDirectory, resolve
from slslab.run.service import open_run
from slslab_lab.replay.measured import find_architecture
from slslab_lab.replay.modelled import model
from slslab_lab.replay.programs.recording import read_recording
from slslab_lab.runs.accuracy.curve import Unwatched
from slslab_lab.runs.planning import read_plan_file
from slslab_lab.runs.platforms import check_limits
from slslab_lab.runs.sam.readme import Cost, make_readme
from slslab_lab.runs.sam.template import CODE, IMAGE_PYTHON, PYTHON, make_template
from slslab_workers.architecture import Cloud, read_plan
from slslab_workers.driver.dependencies import LAYER
from slslab_workers.driver.deployment import Deployment, package
from slslab_workers.models import own_packages, spec_of
from slslab_workers.plan import Plan
from slslab_workers.training import arrays, datasets

DOCKERFILE = f"""\
FROM amazon/aws-lambda-python:{IMAGE_PYTHON}
# An index with PyTorch's build for CPUs, which its own page names: --build-arg PIP_EXTRA_INDEX_URL=URL. By default it
# brings CUDA, and the image is several GB larger.
ARG PIP_EXTRA_INDEX_URL
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY {CODE} ${{LAMBDA_TASK_ROOT}}/
RUN chmod -R a+rX ${{LAMBDA_TASK_ROOT}}
"""
DRIVER = '''\
"""Run plan.json on the functions that template.yaml or emulator.yaml has made; README.md says how."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "code"))

from slslab_workers.driver.deployed import main  # noqa: E402

main(HERE / "plan.json")
'''


def read_source(source: str) -> tuple[Plan, Cost, set[str] | None]:
    """Return the plan of a run or of a plan's file, what it costs, and the packages that its functions imported from
    this machine, None if no one looked: at a plan, at containers, and before version 0.3.

    RequestError if there is neither, or the plan cannot be read.
    """
    path = Path(source)
    if path.name == PLAN and (path.parent / DOCUMENT).exists():
        source = str(path.parent)
    elif path.is_file() or path.suffix == ".toml":
        return read_plan_file(path), _unknown(path), None
    directory = resolve(source)
    if directory.service() is not None:
        raise RequestError(f"{directory.id} was recorded by `slslab up`, so it has no plan.", "export a run.")
    plan = read_plan(directory.plan())
    document = open_run(RunDirectory(directory.path)).summary()
    imported = None
    if plan.environment != "docker" and "host_imports" in document:
        imported = {name for names in document["host_imports"].values() for name in names}
    return plan, _cost_of(directory.path, document, plan), imported


def _unknown(plan: Path) -> Cost:
    measured = f"`slslab run {plan}` measures it; then export that run."
    return Cost("On AWS: not known, because the plan has not run here.", measured, None)


def _cost_of(directory: Path, document: Mapping[str, Any], plan: Plan) -> Cost:
    """Return what a recorded run costs on AWS, by its replay; that is not known if its plan was changed since."""
    if read_plan(document["plan"]) != plan:
        return _unknown(directory / PLAN)
    if replayed(document) is None and document["status"] == "done":
        # Earlier versions kept no model.
        document = {**document, "lambda": model(read_recording(directory), load_book(plan.prices))}
    found = replayed(document)
    if found is None:
        return Cost(headline(document), "Run the plan again, and export that run.", None)
    profile, book = found["profile"], found["cost"]["book"]
    source = (
        f"Modelled: the trace of {plan.run}, which was measured here, replayed on the profile {profile['name']} of "
        f"{profile['date']}, and priced by the book {book['name']} of {book['date']}. {range_note(found)}"
    )
    return Cost(headline(document), source, found["cost"])


def write_export(plan: Plan, cost: Cost, imported: set[str] | None, out: Path) -> tuple[list[str], list[str] | None]:
    """Write everything into a folder that is new or empty; equal plans, costs and installations give equal bytes.

    Return the files' names, and the `imported` packages that the functions' code lacks; None if these aren't known.

    RequestError if the folder holds anything, or the architecture cannot be exported; PlanError if the plan can't run.
    """
    architecture = find_architecture(plan.architecture)
    if plan.faults is not None:
        raise RequestError("The plan has faults, which can only be injected here.", "export a run without --faults.")
    if plan.platform is not None:
        raise RequestError(
            f"The plan is for {plan.platform}, and SAM templates are for Lambda.", "export a run without --platform."
        )
    check_limits(plan, architecture)
    requirements = architecture.requirements(plan)
    deployment = architecture.deployment(plan, Cloud(lambda _: None, lambda _: None), Unwatched())
    if deployment is None:
        raise RequestError(
            f"No SAM template can be made of {plan.architecture}: its `deployment` names no functions.",
            "export a run of another architecture, or write its `deployment` (docs/own.md).",
        )
    if requirements.channel:
        raise RequestError(
            f"No template can be made for the channel {requirements.channel}: its server runs in your own network.",
            "export a run with --channel s3, or of an architecture that requires no channel.",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RequestError(f"{out} already exists.", "choose another --out, or remove it.")
    plan, data = _portable(plan)
    files = (
        data
        | _code(deployment, plan)
        | {
            name: yaml.safe_dump(
                make_template(deployment, requirements, image=image), sort_keys=False, width=120
            ).encode()
            for name, image in (("template.yaml", True), ("emulator.yaml", False))
        }
    )
    if IMAGE_PYTHON != PYTHON and (
        compiled := [name for name in files if f".cpython-{PYTHON.replace('.', '')}-" in name]
    ):
        raise RequestError(
            f"{compiled[0].removeprefix(CODE)} is compiled for Python {PYTHON}; the image has Python {IMAGE_PYTHON}, "
            "because PyTorch can't be installed in AWS's images of earlier versions.",
            f"run slslab on Python {IMAGE_PYTHON}.",
        )
    packed = {name.removeprefix(CODE).partition("/")[0].partition(".")[0] for name in files}
    missing = None if imported is None else sorted(imported - packed)
    (registered,) = entry_points(group="slslab.architectures", name=plan.architecture)
    exported = {
        "architecture": registered.value,
        "function": deployment.functions()[0].name,
        "plan": plan.to_document(),
    }
    texts = {
        "Dockerfile": DOCKERFILE,
        "requirements.txt": "".join(f"{name}=={version(name).partition('+')[0]}\n" for name in LAYER),
        "plan.json": json.dumps(exported, indent=2) + "\n",
        "driver.py": DRIVER,
        "README.md": make_readme(plan, cost, requirements, missing),
    }
    files |= {name: text.encode() for name, text in texts.items()}
    for name, content in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return [CODE, *(name for name in files if not name.startswith(CODE))], missing


def _portable(plan: Plan) -> tuple[Plan, dict[str, bytes]]:
    """Return the plan with its data set as the exported driver finds it, and the files of the data set."""
    source = datasets.find(plan.dataset)
    if value := datasets.value_of(plan.dataset):
        return replace(plan, dataset=value), {}
    training = Path(datasets.__file__).parent
    files = {}
    for path in source.files:
        shipped = path.parent == training
        name = f"{CODE}slslab_workers/training/{path.name}" if shipped else f"data/{path.name}"
        files[name] = path.read_bytes()
        if not shipped:
            before, _, after = plan.dataset.partition(path.name)
            plan = replace(plan, dataset=f"{'libsvm:' if before.startswith('libsvm:') else ''}{name}{after}")
    return plan, files


def _code(deployment: Deployment, plan: Plan) -> dict[str, bytes]:
    """Return the files of the functions' package, with the packages of the plan's own model and data set."""
    builder, dataset = spec_of(plan).builder, datasets.value_of(plan.dataset)
    for kind, value in (("model", builder), *((("data set", dataset),) if dataset else ())):
        arrays.load_object(kind, value)
    others = (*own_packages(plan), *([dataset] if dataset else []))
    files: dict[str, bytes] = {}
    for handler in sorted({spec.handler.partition(".")[0]: spec.handler for spec in deployment.functions()}.values()):
        with zipfile.ZipFile(io.BytesIO(package(handler, *others))) as archive:
            files |= {f"{CODE}{name}": archive.read(name) for name in archive.namelist()}
    return files

"""`pip install slslab` without an extra: an environment of the core's packages alone, made of those installed here."""

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.emulator.test_testing import written
from tests.lab.replay.recordings import write_log, write_run
from tests.test_dependencies import PROJECT, ROOT, WHEEL, declared, normalised

from slslab.installation import EXTRAS
from slslab.run.directory import DOCUMENT

MOST_BYTES = 300e6
PROJECT_PACKAGES = WHEEL["packages"]
NAMES = {
    "vl_convert": "vl-convert-python",
    "PIL": "pillow",
    "mlflow": "mlflow-skinny",
    "jsonata": "jsonata-python",
    "samtranslator": "aws-sam-translator",
    "yaml": "pyyaml",
}
# A function, an object and a key, and what the database answers to a tensor.
USE = """
import io, json, os, zipfile
import boto3, redis

archive = io.BytesIO()
with zipfile.ZipFile(archive, "w") as package:
    package.writestr("app.py", "def handler(event, context): return len(event)")
functions = boto3.client("lambda")
functions.create_function(FunctionName="length", Runtime="python3.11", Handler="app.handler",
                          Role="arn:aws:iam::000000000000:role/test", Code={"ZipFile": archive.getvalue()})
s3 = boto3.client("s3")
s3.create_bucket(Bucket="bucket")
s3.put_object(Bucket="bucket", Key="key", Body=b"object")
database = redis.Redis.from_url(os.environ["SLSLAB_TENSOR_URLS"])
database.set("large", bytes(5_000_000))
try:
    database.execute_command("AI.TENSORSET", "t", "FLOAT", 1, "VALUES", 1)
except redis.ResponseError as error:
    refused = str(error)
print(json.dumps([
    functions.invoke(FunctionName="length", Payload=b"[1, 2]")["Payload"].read().decode(),
    s3.get_object(Bucket="bucket", Key="key")["Body"].read().decode(),
    len(database.get("large")), database.incr("sum"), refused,
]))
"""


def closure(requirements: Sequence[str]) -> dict[str, Distribution]:
    """The distributions that pip would install for these requirements, by name."""
    found: dict[str, Distribution] = {}
    todo = [(Requirement(text), "") for text in requirements]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = normalised(requirement.name)
        for wanted in ("", *requirement.extras):
            if name in found and not wanted:
                continue
            found[name] = distribution(name)
            todo += [(Requirement(text), wanted) for text in found[name].requires or ()]
    return found


@contextmanager
def environment(folder: Path, requirements: Sequence[str]) -> Iterator[Path]:
    """An environment in a folder, of slslab and what pip would install for these requirements."""
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name, each in closure(requirements).items():
        if name == "slslab":
            continue
        for file in each.files or ():
            target = Path(os.path.normpath(packages / file))
            if target.is_relative_to(folder):
                target.parent.mkdir(parents=True, exist_ok=True)
                source = each.locate_file(file)
                if not target.exists() and os.path.exists(str(source)):
                    _link(str(source), target)
    ours = Path(str(distribution("slslab").locate_file(".")))
    # As an index would leave it, so hints name no clone.
    from_an_index = shutil.ignore_patterns("direct_url.json")
    shutil.copytree(next(ours.glob("slslab-*.dist-info")), packages / "slslab-0.dist-info", ignore=from_an_index)
    for code in PROJECT_PACKAGES:
        shutil.copytree(ROOT / code, packages / Path(code).name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "papers", packages / "slslab_lab/published")  # as in a wheel
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The core, with pytest in it."""
    with environment(tmp_path_factory.mktemp("core"), [*PROJECT["dependencies"], "pytest", "pytest-timeout"]) as core:
        yield core


def _link(source: str, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def run(core: Path, directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a module or a file in the environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLSLAB_", "PYTHON"))}
    return subprocess.run(
        [core / "bin" / "python", *arguments],
        cwd=directory,
        env=kept | {"XDG_RUNTIME_DIR": str(directory)} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_core_is_small() -> None:
    core_has = closure(PROJECT["dependencies"]).values()
    files = [Path(str(each.locate_file(file))) for each in core_has for file in each.files or ()]
    files += [
        path
        for folder in ("emulator", "workers", "lab", "plugins", "papers", "results")
        for path in (ROOT / folder).rglob("*")
    ]
    assert sum(path.stat().st_blocks * 512 for path in files if path.is_file()) < MOST_BYTES


def test_every_module_of_an_extra_is_named_with_it() -> None:
    extras = {name: declared(entries) for name, entries in PROJECT["optional-dependencies"].items()}
    for module, extra in EXTRAS.items():
        assert NAMES.get(module, module) in extras[extra], module
    core_has = closure(PROJECT["dependencies"])
    assert not {NAMES.get(module, module) for module in EXTRAS} & core_has.keys()


def test_the_documented_test_passes(core: Path, tmp_path: Path) -> None:
    written(tmp_path)
    done = run(core, tmp_path, "-m", "pytest", "-p", "no:cacheprovider")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert run(core, tmp_path, "service.py").stdout.strip() == "10"


def test_costs_of_a_session_need_the_extra_for_their_page_alone(core: Path, tmp_path: Path) -> None:
    written(tmp_path)
    done = run(core, tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "--slslab-report=costs.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "costs.json").read_text())["invocations"] == 1
    done = run(core, tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "--slslab-report=costs.html")
    sentence = "ERROR: The package jinja2 is not installed. Hint: pip install 'slslab[report]'\n"
    assert (done.returncode, done.stdout, done.stderr.strip()) == (4, "", sentence.strip())


def test_endpoints_their_record_and_their_bill(core: Path, tmp_path: Path) -> None:
    up = run(core, tmp_path, "-m", "slslab", "up", "--detach", "--port", "0", "--s3-port", "0")
    try:
        assert up.returncode == 0, up.stderr
        assert "pip install 'slslab[stepfunctions]' adds it" in up.stdout
        environment = json.loads(run(core, tmp_path, "-m", "slslab", "env", "--json").stdout)["variables"]
        used = run(core, tmp_path, "-c", USE, **environment)
        *values, refused = json.loads(used.stdout or "[0]")
        assert values == ["2", "object", 5_000_000, 1], used.stderr
        assert refused == "RedisAI's commands need numpy and torch: pip install 'slslab[train]'"
    finally:
        down = run(core, tmp_path, "-m", "slslab", "down")
    assert down.returncode == 0
    shown = json.loads(run(core, tmp_path, "-m", "slslab", "show", "up", "--json").stdout)
    assert shown["status"] == "done"
    bill = json.loads(run(core, tmp_path, "-m", "slslab", "bill", "up", "--json").stdout)
    assert {"Lambda requests", "S3 PUT requests"} <= {line["item"] for line in bill["lines"]}


@pytest.fixture
def without_lab(core: Path) -> Iterator[Path]:
    """The core, in which the lab can't be imported."""
    packages = next(core.glob("lib/python*/site-packages"))
    held = [packages / Path(code).name for code in PROJECT_PACKAGES if code.startswith("lab/")]
    for each in held:
        each.rename(each.with_suffix(".held"))
    yield core
    for each in held:
        each.with_suffix(".held").rename(each)


def test_the_emulator_runs_without_the_lab(without_lab: Path, tmp_path: Path) -> None:
    test_the_documented_test_passes(without_lab, tmp_path)
    up = run(without_lab, tmp_path, "-m", "slslab", "up", "--detach", "--port", "0", "--s3-port", "0")
    try:
        assert up.returncode == 0, up.stderr
        environment = json.loads(run(without_lab, tmp_path, "-m", "slslab", "env", "--json").stdout)["variables"]
        assert json.loads(run(without_lab, tmp_path, "-c", USE, **environment).stdout)[:2] == ["2", "object"]
        assert (
            json.loads(run(without_lab, tmp_path, "-m", "slslab", "show", "up", "--json").stdout)["status"] == "running"
        )
    finally:
        assert run(without_lab, tmp_path, "-m", "slslab", "down").returncode == 0


def test_a_trace_is_read_without_parquet(core: Path, tmp_path: Path) -> None:
    """A trace that is a log of JSON lines, as a run leaves it without the extra `report`, and a killed one."""
    runs = tmp_path / "runs"
    for name in ("done", "killed"):
        write_log(runs / name)
    shutil.copy(write_run(tmp_path / "compacted") / DOCUMENT, runs / "done")
    shown = json.loads(run(core, tmp_path, "-m", "slslab", "show", "runs/done", "--json").stdout)
    assert shown["status"] == "done"
    shown = json.loads(run(core, tmp_path, "-m", "slslab", "show", "runs/killed", "--json").stdout)
    assert (shown["error"]["type"], shown["torch"], shown["invocations"] > 0) == ("Killed", None, True)
    bill = json.loads(run(core, tmp_path, "-m", "slslab", "bill", "runs/done", "--json").stdout)
    assert bill["status"] == "not modelled"
    assert bill["reason"] == "The package numpy is not installed. Install it: pip install 'slslab[report]'"
    assert bill["host"]["lines"]
    assert "pip install 'slslab[report]'" in run(core, tmp_path, "-m", "slslab", "report", "runs/done").stderr


def test_a_run_without_the_extra_report_has_its_bill_and_no_page(tmp_path: Path) -> None:
    with environment(tmp_path / "train", [*PROJECT["dependencies"], "slslab[train]"]) as train:
        tiny = ["--model", "lenet", "--dataset", "digits", "--workers", "2", "--batch-size", "8", "--batches", "1"]
        done = run(train, tmp_path, "-m", "slslab", "run", "allreduce", *tiny, "--out", "run", "--json")
        document = json.loads(done.stdout)
        assert document["lambda"]["status"] == "modelled"
        assert document["report"]["file"] is None
        assert document["report"]["error"].endswith("is not installed. Hint: pip install 'slslab[report]'")
        assert (tmp_path / "run" / "trace.jsonl").exists()
        again = json.loads(run(train, tmp_path, "-m", "slslab", "replay", "./run", "--json").stdout)
        seconds = {row["seconds"]["basis"]: row["seconds"]["value"] for row in again["rows"]}
        assert seconds["modelled"] == pytest.approx(document["lambda"]["seconds"], abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (["run", "allreduce"], "torch", "train"),
        (["run", "--help"], "torch", "train"),
        (["accuracy", "mlless"], "torch", "train"),
        (["replay", "last"], "numpy", "report"),
        (["reproduce", "table2"], "numpy", "report"),
        (["export", "last", "--to", "mlflow"], "mlflow", "mlflow"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    core: Path, tmp_path: Path, arguments: list[str], module: str, extra: str
) -> None:
    done = run(core, tmp_path, "-m", "slslab", *arguments)
    assert (done.returncode, done.stderr) == (
        3,
        f"Error: The package {module} is not installed.\nHint: pip install 'slslab[{extra}]'\n",
    )


def test_doctor_says_what_is_not_installed_and_that_the_host_will_do(core: Path, tmp_path: Path) -> None:
    done = run(core, tmp_path, "-m", "slslab", "doctor", "--json")
    found = {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0
    assert found["training"]["hint"] == "pip install 'slslab[train]'"
    assert found["Step Functions"]["hint"] == "pip install 'slslab[stepfunctions]'"
    assert found["replay, pages, Parquet"]["hint"] == "pip install 'slslab[report]'"

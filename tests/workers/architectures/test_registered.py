"""What every registered architecture must show: functions of ours in memory, instances in threads, a stranger's for
real. `tests/lab/commands/test_recorded_runs.py` shows what instances count and cost."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from docs.pages.systems import build as build_systems
from tests.commands import forked_environments, slslab
from tests.entry_points import register
from tests.house.messages import PRODUCT
from tests.workers.architectures.conftest import INSTANCES, InMemory, Stages

from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab.run.directory import RunDirectory
from slslab.run.run import read_run
from slslab_lab.checks.run import check
from slslab_lab.replay.measured import read_measured
from slslab_lab.replay.whatif import Platform, Variant, evaluate
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies import committed
from slslab_workers.architecture import Architecture, Cloud
from slslab_workers.plan import PlanError

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "own"
LENET = 61_706
# What else counts depend on.
MORE: Mapping[str, Mapping[str, int]] = {"kubeml": {"batch_size": 64, "tensors": 10}}
# These average models and not gradients, which rounds elsewhere.
AVERAGING = ("kubeml", "parameter-averaging")
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as `pip install` would leave it: its metadata on the path, which names its entry point."""
    site = tmp_path_factory.mktemp("site")
    groups = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = {group: "\n".join(" = ".join(entry) for entry in entries.items()) for group, entries in groups.items()}
    register(site, "own", **{group.removeprefix("slslab."): text for group, text in lines.items()})
    return site


@pytest.fixture(scope="module")
def run(installed: Path, runs: Path) -> Iterator[Run]:
    """`slslab run ARCH … --json`; equal runs are run once."""
    settings = {"SLSLAB_RUNS": str(runs), "CUDA_VISIBLE_DEVICES": ""}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        patch.syspath_prepend(str(EXAMPLE))

        @cache
        def once(name: str, *options: str) -> dict[str, Any]:
            with forked_environments():
                document: dict[str, Any] = slslab("run", name, *options, "--json", variables=settings).document
            return document

        yield once


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs are left."""
    return tmp_path_factory.mktemp("runs")


NAMES = sorted([*(architectures().keys() - INSTANCES), "parameter-averaging"])
# Plain SGD and one step an epoch, where all synchronous architectures compute the same.
SAME: Mapping[str, int] = {"batches": 1, "epochs": 2, "workers": 2, "momentum": 0, "weight_decay": 0}


@pytest.fixture(scope="module")
def document_of(in_memory: InMemory, run: Run) -> Callable[[str], Any]:
    """Run an architecture with SAME, and return the document; equal runs are run once."""

    @cache
    def once(name: str) -> Any:
        if name == "parameter-averaging":
            given = (word for option, value in SAME.items() for word in (f"--{option.replace('_', '-')}", str(value)))
            return run(name, *given, "--every", "1")
        # With a filter messages depend on what is learnt.
        return in_memory(name, {"filter": "none"} if name == "mlless" else {}, **SAME).recorded.document

    return once


@pytest.mark.parametrize("name", NAMES)
def test_a_run_counts_what_its_closed_form_says_and_its_bill_adds_up(
    name: str, document_of: Callable[[str], Any]
) -> None:
    document = document_of(name)
    assert document["status"] == "done"
    assert document["replicas_equal"] is True
    assert document["updates"] == 2
    architecture: Any = architectures()[name]
    options = {"every": 1} if name == "parameter-averaging" else {}
    counts = architecture.counts(2, 1, 2, LENET, options, **MORE.get(name, {}))
    expected = {operation: number for operation, number in counts.operations.items() if number}
    moved = (counts.bytes_in, counts.bytes_out)
    assert document["counts"] == expected
    assert (document["bytes"]["in"], document["bytes"]["out"]) == moved
    cost = document["cost"]
    assert sum(float(line["amount"]) for line in cost["lines"]) == pytest.approx(float(cost["total"]), rel=1e-9)


def test_plain_sgd_gives_equal_bits_in_all(document_of: Callable[[str], Any], train: Callable[..., Any]) -> None:
    fingerprints = {name: document_of(name)["parameters_sha256"] for name in NAMES if name not in AVERAGING}
    for name in INSTANCES:
        trained = train(make_plan(architectures()[name], {"dataset": "digits", **SAME}, {}))
        fingerprints |= {f"{name} {rank}": each["parameters_sha256"] for rank, each in enumerate(trained.results)}
    assert len(set(fingerprints.values())) == 1, fingerprints


def test_the_examples_architecture_is_short_and_no_code_of_ours_knows_it() -> None:
    sources = [EXAMPLE / name for name in ("pyproject.toml", "own/__init__.py", "own/handlers.py")]
    assert sum(len(path.read_text().splitlines()) for path in sources) < 90
    ours = [
        path
        for folder in (*PRODUCT, "docs", "tests/memory")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".toml", ".json")
    ]
    assert len(ours) > 500
    assert [path for path in ours if re.search(r"parameter-averaging|\bown\.handlers\b", path.read_text())] == []


def test_the_example_averages_every_k_steps(run: Run) -> None:
    document = averaged(run)
    assert document["counts"] == {"object.put": 4, "object.get": 4}
    assert document["updates"] == 4
    assert document["replicas_equal"] is True


def averaged(run: Run, *more: str) -> dict[str, Any]:
    """A run of the example: two workers, who average twice."""
    return run("parameter-averaging", "--batches", "4", "--workers", "2", "--every", "2", "--record", "together", *more)


def test_messages_of_the_example_are_checked_by_the_keys_of_its_pattern(run: Run, runs: Path) -> None:
    recorded = read_run(RunDirectory(runs / averaged(run)["run"]))
    checked = check(recorded)
    assert not checked.violations
    assert not checked.not_checked
    taken = ("object.get", "synchronise", 1, False)
    got = next(e for e in recorded.events if (e["op"], e["phase"], e["worker"], e["failed"]) == taken)
    kept = [{**event, "failed": event["failed"] or event is got} for event in recorded.events]
    lost = check(recorded.replace(events=kept), ["lost"]).violations
    assert [violation.sentence for violation in lost] == [
        "Worker 1 did not take the model of epoch 0, step 1, from worker 0."
    ]


def test_the_example_is_replayed_with_64_workers(run: Run, runs: Path) -> None:
    recorded = read_measured(runs / averaged(run)["run"])
    platform = Platform(load_profile(DEFAULT_PROFILE), load_book(DEFAULT_BOOK), recorded.plan.timeout)
    own, many = (evaluate(recorded, variant, platform) for variant in (Variant(), Variant(workers=64)))
    assert 16 * own.number("cost") < many.number("cost") < 128 * own.number("cost")


def test_the_example_meets_faults_and_has_a_page(run: Run, runs: Path, tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    slow = 'kind = "slow-store"\nop = "object.put"\nphase = "synchronise"\nseconds = 0.01\n'
    faults.write_text(f"seed = 1\n[[fault]]\n{slow}")
    document = averaged(run, "--faults", str(faults))
    assert document["status"] == "done"
    [fault] = document["faults"]
    assert (fault["kind"], fault["times"]) == ("slow-store", 4)
    assert fault["held_up_seconds"] > 0.04
    assert not check(read_run(RunDirectory(runs / document["run"]))).violations
    page = (runs / document["run"] / "report.html").read_text()
    assert "<h1>parameter-averaging, LeNet-5 on digits</h1>" in page
    assert "Faults were injected into it, and a replay would run without them: slow-store." in page


@pytest.mark.parametrize("name", ["gpu", "spirt"])
def test_the_examples_model_and_data_are_trained_by_ours(name: str, run: Run, runs: Path) -> None:
    """Instances of this host find the package, functions have it in their archive, and replay needs neither."""
    training = ("--model", "mlp", "--dataset", "spirals", "--workers", "2", "--batches", "2", "--record", "together")
    document = run(name, *training)
    assert (document["status"], document["replicas_equal"]) == ("done", True)
    assert document["parameters"] == 2 * 32 + 32 + 32 * 3 + 3
    assert document["plan"]["model_spec"]["builder"] == "own.learning:mlp"
    recorded = read_measured(runs / document["run"])
    platform = Platform(load_profile(DEFAULT_PROFILE), load_book(DEFAULT_BOOK), recorded.plan.timeout)
    assert evaluate(recorded, Variant(workers=8), platform).number("cost") > 0


class Elsewhere:
    """A copy of the example outside the checkout, and an environment whose other packages are this one's."""

    def __init__(self, folder: Path) -> None:
        self.copy, packages = folder / "own", folder / "environment"
        shutil.copytree(EXAMPLE, self.copy, ignore=shutil.ignore_patterns("__pycache__"))
        venv.create(packages, symlinks=True)
        self.site = next(packages.glob("lib/python*/site-packages"))
        ours = [str(ROOT / folder) for folder in ("emulator", "workers", "lab", "plugins")]
        others = [path for path in sys.path if path.endswith("site-packages")]
        (self.site / "ours.pth").write_text("\n".join([*ours, *others]))
        self.python, self.folder = str(packages / "bin" / "python"), folder

    def install(self, *projects: Path) -> None:
        """Install with pip."""
        options = ("--quiet", "--no-deps", "--no-build-isolation")
        self.call(sys.executable, "-m", "pip", "--python", self.python, "install", *options, *map(str, projects))

    def call(self, program: str, *words: str, code: int = 0) -> str:
        """Return what a program prints on stdout."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("SLSLAB", "PYTHON"))}
        done = subprocess.run(
            [program, *words], cwd=self.folder, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def slslab(self, *words: str, code: int = 0) -> Any:
        """Return the document of a command."""
        return json.loads(self.call(self.python, "-m", "slslab", *words, "--json", code=code))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path)


def test_the_example_passes_its_own_test_in_an_environment_of_its_own(elsewhere: Elsewhere) -> None:
    elsewhere.install(elsewhere.copy)
    elsewhere.call(elsewhere.python, "-m", "pytest", "-q", str(elsewhere.copy / "test_own.py"))


def test_what_the_example_requires_is_packed_and_what_else_it_imports_is_named(elsewhere: Elsewhere) -> None:
    turns = elsewhere.folder / "turns"
    turns.mkdir()
    (turns / "turns.py").write_text("FULL = 6.28\n")
    project, handlers = elsewhere.copy / "pyproject.toml", elsewhere.copy / "own" / "handlers.py"
    build = "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n"
    (turns / "pyproject.toml").write_text(f"[project]\nname = 'turns'\nversion = '2.0'\n{build}")
    project.write_text(project.read_text().replace('"slslab[train]"', '"slslab[train]", "turns>=2"'))
    handlers.write_text(handlers.read_text().replace("import torch\n", "import torch\nimport turns\n", 1))
    elsewhere.install(elsewhere.copy, turns)
    small = ("--workers", "1", "--epochs", "1", "--no-evaluation", "--record", "together")
    run = ("run", "parameter-averaging", "--model", "mlp", "--dataset", "spirals", *small)
    strict = elsewhere.slslab(*run, "--strict-packages")
    assert (strict["status"], strict["host_imports"]) == ("done", {})
    assert not elsewhere.slslab("export", "sam", "last", "--out", "complete")["missing"]
    assert (elsewhere.folder / "complete" / "code" / "turns.py").exists()

    handlers = elsewhere.site / "own" / "handlers.py"
    handlers.write_text(handlers.read_text().replace("import turns\n", "import turns\nimport yaml\n", 1))
    lenient = elsewhere.slslab(*run)
    assert lenient["host_imports"] == {f"slslab-{lenient['run']}": ["yaml"]}
    printed = " ".join(elsewhere.call(elsewhere.python, "-m", "slslab", "show", "last").split())
    assert f"slslab-{lenient['run']} imported yaml from this machine, not from its package." in printed
    assert elsewhere.slslab("replay", "last", "--workers", "8")
    assert elsewhere.slslab("check", "last")["holds"]
    assert "imported yaml" in (elsewhere.folder / "runs" / lenient["run"] / "report.html").read_text()
    assert elsewhere.slslab("export", "sam", "last", "--out", "incomplete")["missing"] == ["yaml"]
    assert "`code/` lacks yaml" in (elsewhere.folder / "incomplete" / "README.md").read_text()
    refused = elsewhere.slslab("run", f"runs/{lenient['run']}/plan.toml", "--strict-packages", code=1)
    assert refused["error"]["message"] == "Unable to import module 'own.handlers': No module named 'yaml'"


def test_the_example_stands_in_the_table_of_systems_once_the_atlas_has_its_recording(
    run: Run, runs: Path, tmp_path: Path
) -> None:
    for recording in committed("atlas").glob("lenet-*"):
        (tmp_path / recording.name).symlink_to(recording)
    (tmp_path / "lenet-parameter-averaging").symlink_to(runs / averaged(run)["run"])
    assert [row[2] for row in build_systems(tmp_path).rows if row[0] == "parameter-averaging"] == [
        "2 workers, lenet, 2 invocations"
    ]


def test_one_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tmp_path, "torn", architectures="torn = torn.package:architecture")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "--workers" in slslab("run", "allreduce", "--help").out
    why = "torn.package:architecture cannot be imported: ModuleNotFoundError: No module named 'torn'."
    refused = slslab("run", "torn")
    assert (refused.code, refused.err) == (
        2,
        f"Error: The architecture 'torn' cannot be run: {why}\nHint: fix its package, or remove it.\n",
    )
    assert "torn is registered, too, but can't be run:" in slslab("run", "--help").out


@pytest.mark.parametrize(
    ("former", "name"),
    [("alone", "solo"), ("run_scripts_alone", "run_solo_scripts"), ("memory_sizes", "needed_mb of an option")],
)
def test_one_with_a_former_name_of_a_method_is_refused(
    former: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"with_{former}.py").write_text(
        "from slslab_workers.architecture import Architecture\n"
        f"class Own(Architecture):\n    name = 'own'\n    def {former}(self, plan): return plan\n"
        "architecture = Own()\n"
    )
    register(tmp_path, f"with_{former}", architectures=f"own = with_{former}:architecture")
    monkeypatch.syspath_prepend(str(tmp_path))
    refused = slslab("run", "own")
    why = f"with_{former}:architecture defines {former}, which is now {name}."
    assert (refused.code, refused.err) == (
        2,
        f"Error: The architecture 'own' cannot be run: {why}\nHint: fix its package, or remove it.\n",
    )


def test_one_whose_deployment_removes_things_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "removing.py").write_text(
        "from slslab_workers.driver.deployment import Deployment, FunctionArchitecture\n"
        "class Removing(Deployment):\n    def remove(self): super().remove()\n"
        "class Own(FunctionArchitecture):\n    name, deploys = 'own', Removing\n"
        "architecture = Own()\n"
    )
    register(tmp_path, "removing", architectures="own = removing:architecture")
    monkeypatch.syspath_prepend(str(tmp_path))
    refused = slslab("run", "own")
    problem = "TypeError: Removing defines remove, which is now a callback of created."
    assert (refused.code, refused.err) == (
        2,
        f"Error: The architecture 'own' cannot be run: removing:architecture cannot be imported: {problem}\n"
        "Hint: fix its package, or remove it.\n",
    )


def test_one_without_a_deployment_must_drive_itself() -> None:
    class Own(Architecture):
        name = summary = "own"

    plan = make_plan(architectures()["allreduce"], {"dataset": "digits"}, {})
    with pytest.raises(PlanError) as refused:
        Own().drive(plan, Cloud(lambda _: None, lambda _: None), Stages())
    assert refused.value.message == "The architecture own has nothing to run."
    assert refused.value.hint == "override drive, or set deploys."

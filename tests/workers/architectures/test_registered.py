"""What every registered architecture must show: functions of ours in memory, instances in threads, a stranger's for
real. `tests/lab/commands/test_recorded_runs.py` shows what instances count and cost."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.commands import forked_environments, slslab
from tests.workers.architectures.conftest import INSTANCES, InMemory

from slslab_lab.runs.planning import architectures, make_plan

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "parameter_averaging"
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
    metadata = site / "parameter_averaging-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: parameter-averaging\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[slslab.architectures]\nparameter-averaging = parameter_averaging:architecture\n"
    )
    return site


@pytest.fixture(scope="module")
def run(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """`slslab run ARCH … --json`; equal runs are run once."""
    settings = {"SLSLAB_RUNS": str(tmp_path_factory.mktemp("runs")), "CUDA_VISIBLE_DEVICES": ""}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        patch.syspath_prepend(str(EXAMPLE))

        @cache
        def once(name: str, *options: str) -> dict[str, Any]:
            with forked_environments():
                document: dict[str, Any] = slslab("run", name, *options, "--json", variables=settings).document
            return document

        yield once


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
    if name == "parameter-averaging":
        expected, moved = {"object.put": 4, "object.get": 4}, (4 * 4 * LENET, 4 * 4 * LENET)
    else:
        architecture: Any = architectures()[name]
        counts = architecture.counts(2, 1, 2, LENET, **MORE.get(name, {}))
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


def test_the_example_is_short_and_averages_every_k_steps(run: Run) -> None:
    sources = [path for path in EXAMPLE.rglob("*") if path.is_file() and path.suffix in (".py", ".toml")]
    assert sum(len(path.read_text().splitlines()) for path in sources) < 100
    document = run("parameter-averaging", "--batches", "4", "--workers", "2", "--every", "2")
    assert document["counts"] == {"object.put": 4, "object.get": 4}
    assert document["updates"] == 4
    assert document["replicas_equal"] is True

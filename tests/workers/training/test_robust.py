"""Rules that withstand Byzantine workers: against EPFL's byzfl, against Zeno's paper, by their properties, and what is
refused."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slslab_workers.channels import scripts
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import gradients, models, robust

BYZFL = Path(os.environ.get("SLSLAB_BYZFL", Path(sys.prefix) / "byzfl"))
TOLD = tuple(name for name in robust.RULES if name != robust.ZENO)


@pytest.fixture(scope="module")
def byzfl() -> Iterator[Any]:
    """Its aggregators, imported past the package's own `__init__`, which wants torchvision."""
    if not BYZFL.exists():
        pytest.skip("byzfl is not installed: make .venv/byzfl")
    package = ModuleType("byzfl")
    package.__path__ = [str(BYZFL / "byzfl")]
    sys.modules["byzfl"] = package
    yield importlib.import_module("byzfl.aggregators")
    for name in [name for name in sys.modules if name.partition(".")[0] == "byzfl"]:
        del sys.modules[name]


def vectors(workers: int, size: int = 301, seed: int = 0) -> list[torch.Tensor]:
    """Gradients around a common one, with an outlier at the end."""
    generator = torch.Generator().manual_seed(seed)
    made = [1 + torch.randn(size, generator=generator) for _ in range(workers)]
    made[-1].mul_(-10)
    return made


def run(name: str, inputs: list[torch.Tensor], *arguments: float) -> Any:
    return scripts.eager_functions()[name](list(inputs), [], [str(each) for each in arguments])


@pytest.mark.parametrize(("workers", "byzantine"), [(5, 1), (7, 2), (8, 1)])
def test_rules_are_those_of_byzfl(byzfl: Any, workers: int, byzantine: int) -> None:
    """Its geometric median begins elsewhere and ends at the same point. Its Krum sums up n - f - 1 distances and not
    the paper's n - f - 2: told f + 1 it is the paper's with f."""
    inputs = vectors(workers)
    stack = torch.stack(inputs)
    clipping = byzfl.CenteredClipping(L=3, tau=0.5)
    clipping.m = run("median", inputs)
    pairs = {
        "average": (run("average", inputs), byzfl.Average()(stack)),
        "median": (run("median", inputs), byzfl.Median()(stack)),
        "trimmed": (run("trimmed_mean", inputs, byzantine), byzfl.TrMean(byzantine)(stack)),
        "meamed": (run("meamed", inputs, byzantine), byzfl.Meamed(byzantine)(stack)),
        "krum": (run("krum", inputs, byzantine), byzfl.Krum(byzantine + 1)(stack)),
        "multi-krum": (
            run("multi_krum", inputs, byzantine, workers - byzantine - 1),
            byzfl.MultiKrum(byzantine + 1)(stack),
        ),
        "geometric median": (run("geometric_median", inputs, 0.1, 60), byzfl.GeometricMedian(nu=0.1, T=60)(stack)),
        "clipping": (run("centred_clipping", inputs, 0.5, 3), clipping(stack)),
    }
    for name, (ours, theirs) in pairs.items():
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, msg=name)


def test_torchscript_has_the_bits_of_python() -> None:
    unit, inputs = torch.jit.CompilationUnit(scripts.SOURCE), vectors(7)
    for name in TOLD:
        function, arguments = robust.script(name, 7, 2)
        scripted = getattr(unit, function)(inputs, [], [str(each) for each in arguments])
        assert torch.equal(scripted, robust.aggregate(name, inputs, 2)), name


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), order=st.permutations(range(7)), name=st.sampled_from(TOLD))
def test_who_sent_what_does_not_matter(seed: int, order: list[int], name: str) -> None:
    inputs = vectors(7, 23, seed)
    changed = robust.aggregate(name, [inputs[rank] for rank in order], 2)
    torch.testing.assert_close(changed, robust.aggregate(name, inputs, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["trimmed-mean", "meamed", "multi-krum"])
def test_told_of_none_a_rule_is_the_mean(name: str) -> None:
    inputs = vectors(5)
    torch.testing.assert_close(robust.aggregate(name, inputs, 0), torch.stack(inputs).mean(0))
    scores = [0.0, 1.0, 2.0, 3.0, 4.0]
    torch.testing.assert_close(robust.aggregate("zeno", inputs, 0, scores), torch.stack(inputs).mean(0))


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_what_is_not_finite_does_not_get_through(name: str, value: float) -> None:
    inputs = vectors(5)[:4]
    honest = torch.stack(inputs)
    for rank in range(5):
        attacked = [*inputs[:rank], torch.full((301,), value), *inputs[rank:]]
        aggregate = robust.aggregate(name, attacked, 1)
        assert (aggregate >= honest.min(0)[0] - 2).all(), name
        assert (aggregate <= honest.max(0)[0] + 2).all(), name


@pytest.mark.parametrize("name", TOLD)
def test_a_vector_of_zeros_does_not_stop_training(name: str) -> None:
    honest = [1 + vector / 10 for vector in vectors(5)[:4]]
    assert float(robust.aggregate(name, [*honest, torch.zeros(301)], 1).mean()) > 0.5


def test_inputs_stay_as_they_are() -> None:
    inputs = vectors(5)
    for name in TOLD:
        aggregate = robust.aggregate(name, inputs, 1)
        aggregate.zero_()
        assert all(map(torch.equal, inputs, vectors(5))), name


def test_zeno_is_that_of_the_paper() -> None:
    """Written out: Score(v) = L(x) - L(x - γv) - ρ‖v‖², the n - f highest are averaged (Definition 3)."""
    rate, penalty = 0.1, 0.1 * robust.PENALTY
    generator = torch.Generator().manual_seed(0)
    model = models.build("lenet", 0)
    inputs, targets = torch.randn(8, 1, 32, 32, generator=generator), torch.arange(8)
    start = gradients.flatten(model.parameters())
    sent = [0.1 * torch.randn(len(start), generator=generator) for _ in range(5)]
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    sent[2] = gradients.flat_gradient(model)
    expected = []
    for vector in sent:
        gradients.write_parameters(model, start - rate * vector)
        moved = torch.nn.functional.cross_entropy(model(inputs), targets)
        expected.append((loss - moved - penalty * vector.norm() ** 2).item())
    gradients.write_parameters(model, start)
    scores = robust.zeno_scores(model, sent, inputs, targets, rate)
    assert scores == pytest.approx(expected, abs=1e-5)
    assert max(range(5), key=lambda rank: scores[rank]) == 2
    kept = sorted(range(5), key=lambda rank: -expected[rank])[:3]
    mean = sum(sent[rank] for rank in kept) / 3
    torch.testing.assert_close(robust.aggregate("zeno", sent, 2, scores), mean)
    assert torch.equal(gradients.flatten(model.parameters()), start)


def test_zeno_leaves_buffers_alone_and_keeps_no_nan() -> None:
    model = models.build("mobilenet", 0)
    before = [buffer.clone() for buffer in model.buffers()]
    count = sum(parameter.numel() for parameter in model.parameters())
    sent = [torch.zeros(count), torch.full((count,), float("nan")), torch.zeros(count)]
    scores = robust.zeno_scores(model, sent, torch.randn(4, 3, 32, 32), torch.arange(4), 0.1)
    assert all(map(torch.equal, before, model.buffers()))
    assert torch.equal(robust.aggregate("zeno", sent, 1, scores), torch.zeros(count))


def plan(workers: int = 5, **options: Any) -> Plan:
    shape: dict[str, Any] = {"model": "lenet", "dataset": "digits", "batch_size": 8, "batches": 2, "memory_mb": 1024}
    return Plan(run="run", architecture="allreduce", workers=workers, **shape, options=options)


@pytest.mark.parametrize(
    ("workers", "options", "message"),
    [
        (4, {"combine": "krum", "byzantine": 1}, "needs n ≥ 2f \\+ 3 workers: 5 for --byzantine 1, and --workers is 4"),
        (6, {"combine": "multi-krum", "byzantine": 2}, "needs n ≥ 2f \\+ 3 workers: 7"),
        (4, {"combine": "trimmed-mean", "byzantine": 2}, "needs n ≥ 2f \\+ 1 workers: 5"),
        (2, {"combine": "zeno", "byzantine": 2}, "needs n ≥ f \\+ 1 workers: 3"),
        (5, {"combine": "meamed"}, "must be told how many workers may be Byzantine"),
        (5, {"combine": "median", "byzantine": 1}, "--byzantine does not apply to --combine median"),
        (5, {"byzantine": 1}, "--byzantine does not apply to --combine mean"),
    ],
)
def test_preconditions_are_refused_with_a_sentence(workers: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message) as refused:
        robust.check(plan(workers, **options))
    assert refused.value.hint


def test_what_can_be_is_not_refused() -> None:
    robust.check(plan())
    for name in robust.RULES:
        robust.check(plan(combine=name, **({"byzantine": 1} if robust.KNOWN[name].informed else {})))

"""Byzantine workers, and rules that withstand them: real handlers, with the bits of one process."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.workers.architectures.peers import Peers, check_counts

from slslab_lab.runs.planning import architectures
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import robust

Train = Callable[..., Any]
MakePlan = Callable[..., Plan]
EVERYWHERE = tuple(name for name in robust.RULES if name != robust.ZENO)


# Without a filter MLLess's workers send gradients.
ALSO: dict[str, dict[str, Any]] = {"mlless": {"filter": "none"}}


def told(rule: str) -> dict[str, Any]:
    return {"combine": rule, **({"byzantine": 1} if robust.KNOWN[rule].informed else {})}


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *(("allreduce", rule) for rule in robust.RULES),
        *((name, rule) for name in ("gpu", "mlless") for rule in ("median", "krum", "meamed")),
        *(("scatterreduce", rule) for rule in ("median", "trimmed-mean", "meamed")),
    ],
)
def test_a_rule_has_the_bits_and_the_counts_of_one_process(
    name: str, rule: str, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    """Under an attack, too, a run sends no more and no less."""
    options = {**told(rule), "attack": "sign-flip:4", **ALSO.get(name, {})}
    plan = make_plan(name, workers=5, batch_size=4, options=options)
    architectures()[name].requirements(plan)
    trained = train(plan)
    expected = reference(plan)[0]
    assert len(set(expected)) == len(expected)
    assert all(trained.fingerprints[rank] == expected for rank in range(5))
    counts = architectures()[name].counts(5, plan.batches, 1, 61_706)
    counted, bytes_in, bytes_out = trained.protocol()
    assert counted == {operation: number for operation, number in counts.operations.items() if number}
    assert (bytes_in, bytes_out) == (counts.bytes_in, counts.bytes_out)
    reduced = [event for event in trained.events if event["op"] == "reduce"]
    assert {event["resource"] for event in reduced} == {rule}
    assert len(reduced) == plan.batches * (1 if name == "allreduce" else 5)


@pytest.mark.parametrize("name", ["allreduce", "gpu", "mlless", "scatterreduce"])
@pytest.mark.parametrize("attack", ["gaussian:1,2", "label-flip:1", "scaled:0", "nan:2"])
def test_attacks_have_the_bits_of_one_process(
    name: str, attack: str, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    honest = {"combine": "median", **ALSO.get(name, {})}
    options = {**honest, "attack": attack}
    attacked = train(make_plan(name, workers=3, options=options))
    assert attacked.fingerprints[0] == reference(make_plan(name, workers=3, options=options))[0]
    assert attacked.fingerprints[0] != reference(make_plan(name, workers=3, options=honest))[0]


@pytest.mark.parametrize("name", ["norm-ratio", "coordinate"])
def test_an_attack_comes_before_the_filter(
    name: str, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    options = {"filter": name, "threshold": 0.4}
    plan = make_plan("mlless", workers=3, epochs=2, options={**options, "attack": "sign-flip:2"})
    architectures()["mlless"].requirements(plan)
    attacked = train(plan)
    assert attacked.fingerprints[0] == attacked.fingerprints[2] == reference(plan)[0]
    assert attacked.fingerprints[0] != reference(make_plan("mlless", workers=3, epochs=2, options=options))[0]


def test_gradients_that_meet_elsewhere_have_the_same_aggregate(
    make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    """MLLess without a filter gives the same bits for rules that judge each coordinate by itself, and so do two ways to
    slice gradients (`test_slices_of_a_robust_rule…`)."""
    options = {**told("trimmed-mean"), "attack": "scaled:1"}
    learnt = [
        tuple(reference(make_plan(name, workers=3, options={**options, **ALSO.get(name, {})}))[0])
        for name in ("allreduce", "mlless", "gradssharding", "scatterreduce")
    ]
    assert len(set(learnt)) == 1


@pytest.mark.parametrize("attack", ["alie:3,4", "ipm:0"])
def test_instances_that_attack_read_the_honest_gradients_first(
    attack: str, train: Train, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    """They know what they claim to know, and read nothing twice."""
    plan = make_plan("gpu", workers=5, batch_size=4, options={"attack": attack})
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    expected = architectures()["gpu"].counts(5, plan.batches, 1, 61_706)
    assert trained.protocol() == (dict(expected.operations), expected.bytes_in, expected.bytes_out)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gloo", told("krum"), "gloo's ring adds them up itself"),
        ("scatterreduce", told("krum"), "ScatterReduce's workers only have a part of each"),
        ("scatterreduce", {"attack": "ipm:4"}, "ScatterReduce's workers only have a part of each"),
        ("gpu", told("zeno"), "each worker would use its own"),
        ("mlless", {"attack": "nan:1"}, "With --filter norm-ratio NaN is never significant"),
        ("mlless", told("median"), "a worker sends the sum of several steps' gradients, or nothing"),
        ("mlless", {**told("krum"), "filter": "coordinate"}, "with --filter coordinate a worker sends the sum"),
        (
            "mlless",
            {**told("median"), "filter": "none", "remove-threshold": 15.0, "remove-interval": 20.0},
            "a removed worker sends none",
        ),
        ("mlless", {"attack": "alie:4"}, "announce their updates before they read the others'"),
        ("gradssharding", told("krum"), "a function of GradsSharding has a part of each"),
        ("gradssharding", {**told("median"), "topology": "lifl"}, "functions have only some clients' gradients"),
        ("gradssharding", {"attack": "ipm:4"}, "clients end before any can read the others'"),
        ("gradssharding", {"attack": "nan:4", "gradients": "uploaded"}, "so --attack doesn't apply"),
        ("allreduce", {"attack": "alie:4"}, "rank 0 deletes each as soon as it has read it"),
        ("allreduce", {**told("zeno"), "attack": "nan:0"}, "Zeno trusts the minibatch of rank 0"),
        ("allreduce", {**told("median"), "channel": "parameter-server"}, "a parameter server only has their sum"),
        ("allreduce", {**told("median"), "algorithm": "ma"}, "Workers exchange models here"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    name: str, options: dict[str, Any], message: str, make_plan: MakePlan
) -> None:
    with pytest.raises(PlanError, match=message) as refused:
        architectures()[name].requirements(make_plan(name, workers=5, options=options))
    assert refused.value.hint


@pytest.mark.parametrize("rule", EVERYWHERE)
def test_spirts_databases_apply_a_rule_with_the_bits_of_one_process(
    rule: str, peers: Peers, make_plan: MakePlan, reference: Callable[[Plan], Any]
) -> None:
    options = {**told(rule), "attack": "sign-flip:4"}
    plan = make_plan("spirt", workers=5, batches=1, epochs=2, batch_size=4, options=options)
    architectures()["spirt"].requirements(plan)
    ran = peers.run(plan)
    assert ran.outcome.parameters_sha256 == reference(plan)[0][-1]
    assert ran.outcome.replicas_equal
    check_counts(ran)
    assert peers.left() == []

"""From what the command line gave, or a plan's file, to a complete plan."""

import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from slslab.errors import RequestError
from slslab_lab.runs.planning import architectures, load_plan, make_plan, settle
from slslab_workers.architecture import chosen_options, read_plan
from slslab_workers.plan import Plan, PlanError

# The command line's own default.
GIVEN = {"dataset": "digits"}
RECORDED = sorted(Path("results/table2").glob("*/plan.toml")) + sorted(
    Path("tests/lab/replay/traces").glob("*/plan.toml")
)
NAMES = ("allreduce", "gloo", "gpu", "gradssharding", "kubeml", "mlless", "scatterreduce", "spirt")


def write(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(tomli_w.dumps(document))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_has_every_option_with_its_default(name: str) -> None:
    architecture = architectures()[name]
    plan = make_plan(architecture, GIVEN, {})
    assert plan.options == {option.name: option.default for option in architecture.options}
    assert chosen_options(name, plan.options) == {}
    chosen = {option.name: option.released for option in architecture.options if option.released is not None}
    released = make_plan(architecture, GIVEN | {"as_released": True}, {})
    assert released.options == {**plan.options, **chosen}
    assert chosen_options(name, released.options) == chosen


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("allreduce", {"combine": "sum", "polling": "released", "log-traffic": True}),
        ("scatterreduce", {"polling": "released", "log-traffic": True}),
        (
            "mlless",
            {"filter": "none", "mean-over": "senders", "store": "s3", "optimiser": "adam", "log-traffic": True},
        ),
        ("spirt", {"gradients": "json", "averaging": "round-trip"}),
        ("gradssharding", {"averaging": "unweighted"}),
        ("kubeml", {"parallelism": "throughput"}),
    ],
)
def test_as_released_is_what_the_options_say_and_a_given_one_wins(name: str, chosen: dict[str, Any]) -> None:
    architecture, released = architectures()[name], GIVEN | {"as_released": True}
    assert chosen_options(name, make_plan(architecture, released, {}).options) == chosen
    for option in architecture.options:
        if option.name in chosen:
            plan = make_plan(architecture, released, {option.name: option.default})
            assert plan.options[option.name] == option.default


@pytest.mark.parametrize(
    ("values", "options", "model", "batches"),
    [
        ({"dataset": "breast-cancer"}, {}, "lr-30", 7),
        ({"dataset": "higgs-shaped", "model": "svm"}, {"algorithm": "admm"}, "svm-28", 24),
        ({"dataset": "rcv1-shaped"}, {}, "lr-47236", 24),
        ({"dataset": "breast-cancer", "model": "kmeans"}, {"algorithm": "em", "clusters": 4}, "kmeans-4x30", 7),
        ({"dataset": "breast-cancer", "model": "lr-30"}, {}, "lr-30", 7),
    ],
)
def test_a_model_for_rows_becomes_as_wide_as_they_are(
    values: dict[str, Any], options: dict[str, Any], model: str, batches: int
) -> None:
    plan = make_plan(architectures()["allreduce"], values, options)
    assert (plan.model, plan.batches) == (model, batches)
    architectures()["allreduce"].requirements(plan)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("allreduce", {"dataset": "digits", "model": "lr"}, "the data set digits has none"),
        ("allreduce", {"dataset": "breast-cancer", "model": "kmeans"}, "k-means is trained by EM"),
        ("mlless", {"dataset": "breast-cancer", "model": "kmeans"}, "k-means is trained by EM"),
        ("allreduce", {"dataset": "libsvm:/nowhere", "model": "svm"}, "/nowhere can't be read"),
    ],
)
def test_a_model_for_rows_that_cannot_be_trained_is_refused(name: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        make_plan(architectures()[name], values, {})


def test_a_plan_of_before_may_give_an_option_that_is_gone_the_value_of_what_is_done_now(tmp_path: Path) -> None:
    plan = make_plan(architectures()["kubeml"], GIVEN, {})
    for gone, chosen in ({"combine": "mean", "byzantine": 0}, {}), ({"combine": "median"}, {"combine": "median"}):
        document = plan.to_document() | {"options": {**plan.options, **gone}}
        assert chosen_options("kubeml", document["options"]) == chosen
        assert read_plan(document).options == {**plan.options, **chosen}
    with pytest.raises(RequestError, match="kubeml has no option 'combine'"):
        load_plan(write(tmp_path / "plan.toml", document))


def test_json_gradients_imply_a_round_trip() -> None:
    spirt = architectures()["spirt"]
    assert make_plan(spirt, GIVEN, {"gradients": "json"}).options["averaging"] == "round-trip"
    naive = make_plan(spirt, GIVEN, {"gradients": "json", "averaging": "naive"})
    with pytest.raises(PlanError, match="averaged by a round trip"):
        spirt.requirements(naive)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("mlless", {"thresold": 1.0}, "mlless has no option 'thresold'"),
        ("mlless", {"threshold": "much"}, "threshold cannot be 'much'"),
        ("mlless", {"supervisor-memory": True}, "supervisor-memory cannot be True"),
        ("mlless", {"filter": "any"}, "filter cannot be 'any'"),
        ("allreduce", {"log-traffic": 1}, "log-traffic cannot be 1"),
    ],
)
def test_options_that_cannot_be(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=re.escape(says)) as refused:
        make_plan(architectures()[name], GIVEN, options)
    assert refused.value.hint.endswith(".")


@pytest.mark.parametrize("options", [{"threshold": 2}, {"threshold": math.inf}, {"remove-threshold": "off"}])
def test_options_that_can_be(options: dict[str, Any], tmp_path: Path) -> None:
    plan = make_plan(architectures()["mlless"], GIVEN, options)
    again = load_plan(write(tmp_path / "plan.toml", plan.to_document()))
    assert again.to_document() == plan.to_document() | {"run": again.run}


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_read_again_under_a_new_id(name: str, tmp_path: Path) -> None:
    plan = make_plan(architectures()[name], GIVEN | {"seed": 3, "until_accuracy": 0.5, "prices": "paper-2025"}, {})
    document = plan.to_document()
    assert document["schema"] == 2
    assert document["prices"] == "paper-2025"
    write(tmp_path / "plan.toml", document)
    for path in (tmp_path / "plan.toml", tmp_path):
        again = load_plan(path)
        assert again.run != plan.run
        assert again.to_document() == {**document, "run": again.run}
    assert read_plan(document) == plan


def test_a_price_book_of_the_users_own_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    plan = make_plan(architectures()["allreduce"], GIVEN | {"prices": "mine.toml"}, {})
    assert plan.prices == str(tmp_path / "mine.toml")


def test_auto_becomes_what_the_system_has() -> None:
    plan = make_plan(architectures()["mlless"], GIVEN, {})
    settled = settle(plan, {"queue": "embedded", "device": "cpu"})
    assert settled.options == {**plan.options, "queue": "embedded"}
    rabbitmq = make_plan(architectures()["mlless"], GIVEN, {"queue": "rabbitmq"})
    assert settle(rabbitmq, {"queue": "embedded"}) == rabbitmq


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_plans_of_schema_1_are_read_with_their_defaults_and_not_run_again(path: Path) -> None:
    document = tomllib.loads(path.read_text())
    assert "schema" not in document
    plan = read_plan(document)
    architecture = architectures()[plan.architecture]
    assert plan.options == {option.name: option.default for option in architecture.options} | document["options"]
    assert plan.prices == "aws-us-east-1"
    architecture.requirements(plan)
    with pytest.raises(RequestError, match=r"run again, because it has no schema, .*prices, options\.") as refused:
        load_plan(path)
    assert f"slslab run {plan.architecture} --help" in refused.value.hint


@pytest.mark.parametrize("name", NAMES)
def test_plans_of_0_2_0_are_run_again(name: str, tmp_path: Path) -> None:
    """They have schema 2, but options were added since."""
    plan = make_plan(architectures()[name], GIVEN, {})
    options = {option: value for option, value in plan.options.items() if option not in ("partition", "buffers")}
    again = load_plan(write(tmp_path / "plan.toml", plan.to_document() | {"options": options}))
    assert again == replace(plan, run=again.run)


def test_a_plan_of_an_architecture_that_is_not_installed_is_read_as_it_is() -> None:
    document = make_plan(architectures()["allreduce"], GIVEN, {}).to_document() | {"architecture": "ring"}
    assert read_plan(document) == Plan.from_document(document)
    assert chosen_options("ring", {"hops": 2}) == {"hops": 2}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architecture": "ring"}, "The architecture 'ring' of the plan "),
        ({"schema": 3}, "has schema 3, and this version reads 1 and 2"),
        ({"epochs": None}, "it has no epochs"),
        ({"options": {}}, "it has no options.channel, options.channel-host, options.serialisation"),
        ({"workers": "4"}, "workers is '4'"),
        ({"until_accuracy": "high"}, "until_accuracy is 'high'"),
        ({"hops": 1}, "no field 'hops'"),
    ],
)
def test_plans_that_cannot_be_run(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    document = make_plan(architectures()["allreduce"], GIVEN, {}).to_document() | changes
    path = write(tmp_path / "plan.toml", {name: value for name, value in document.items() if value is not None})
    with pytest.raises((RequestError, PlanError), match=re.escape(says)):
        load_plan(path)


@pytest.mark.parametrize(
    ("partition", "says"), [("sizes:4,2,1,1", "has 4 sizes for 2 workers"), ("labels:1e300", "needs more classes")]
)
def test_a_plan_whose_partition_was_edited_is_refused(partition: str, says: str, tmp_path: Path) -> None:
    document = make_plan(architectures()["allreduce"], GIVEN | {"workers": 2}, {}).to_document()
    document["options"]["partition"] = partition
    with pytest.raises(PlanError, match=says):
        load_plan(write(tmp_path / "plan.toml", document))


def test_a_file_that_is_not_a_plan(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="There is no plan"):
        load_plan(tmp_path / "plan.toml")
    (tmp_path / "plan.toml").write_text("workers: 4")
    with pytest.raises(RequestError, match="is not TOML"):
        load_plan(tmp_path / "plan.toml")


@pytest.mark.parametrize(
    ("name", "values", "options"),
    [
        ("allreduce", {"until_accuracy": 0.9}, {}),
        ("scatterreduce", {"early_stopping": True}, {}),
        ("mlless", {}, {"remove-threshold": 15.0, "remove-interval": 20.0, "max-time": 5.0, "end-threshold": 9.0}),
        ("spirt", {"epochs": 4}, {"join": "3:1"}),
        ("gloo", {}, {}),
        ("gpu", {}, {}),
    ],
)
def test_a_worker_alone_does_some_steps_to_their_end_with_no_more_images(
    name: str, values: dict[str, Any], options: dict[str, Any]
) -> None:
    architecture = architectures()[name]
    plan = make_plan(architecture, GIVEN | {"batches": 1, "memory_mb": 2048, **values}, options)
    alone = architecture.solo(plan)
    architecture.requirements(alone)
    assert (alone.workers, alone.batches * alone.epochs) == (1, 4)
    assert alone.batches <= plan.workers * plan.batches
    assert (alone.gradual, alone.evaluation) == (False, False)
    same = ("run", "memory_mb", "batch_size", "model", "memory_format", "timeout", "mode", "stack", "environment")
    assert all(getattr(alone, field) == getattr(plan, field) for field in same)
    ending = {"remove-threshold": "off", "remove-interval": "off", "max-time": 0, "end-threshold": 0, "join": "none"}
    assert {key: alone.options[key] for key in options} == {key: ending[key] for key in options}

"""The page of LambdaML's design space: of all combinations, and what is refused is refused today."""

import json

from docs.build import build
from docs.pages.lambdaml_space import DATA
from tests import lambdaml_space

from slslab_workers.plan import PlanError

DOCUMENT = json.loads(DATA.read_text())


def test_the_data_has_every_combination_of_today_s_options() -> None:
    axes = ("pattern", "model", *lambdaml_space.AXES)
    assert [tuple(cell[axis] for axis in axes) for cell in DOCUMENT["cells"]] == [
        tuple(cell[axis] for axis in axes) for cell in lambdaml_space.combinations()
    ]


def test_what_ran_could_be_run_today_and_what_is_refused_is_refused_with_the_same_words() -> None:
    for cell in DOCUMENT["cells"]:
        try:
            lambdaml_space.plan_of(cell)
            said = None
        except PlanError as error:
            said = error.message
        assert said == cell.get("reason"), cell


def test_what_ran_has_the_closed_form_s_counts_and_equal_workers_where_they_wait_for_each_other() -> None:
    done = [cell for cell in DOCUMENT["cells"] if cell["status"] == "done"]
    assert all(cell["as_predicted"] for cell in done)
    assert {cell["channel"] for cell in done} == {"s3", "memcached", "redis", "dynamodb", "parameter-server"}
    assert all(cell["replicas_equal"] for cell in done if cell["synchronisation"] == "bsp")


def test_the_page_answers_first() -> None:
    first = build("lambdaml-space.md").split("\n\n")[1]
    assert first.startswith(f"Of {len(DOCUMENT['cells'])} combinations of pattern, model, algorithm, synchronisation")
    assert "the same to the bit" in " ".join(first.split())

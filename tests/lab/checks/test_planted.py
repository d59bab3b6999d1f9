"""A checker that is checked: violations planted in real traces, each found and named."""

import tomllib
from pathlib import Path

import pytest
from tests.lab.checks.plants import PLANTS

from slslab_lab.checks.run import RULES, check

VIOLATIONS = tomllib.loads(Path(__file__).with_name("violations.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_violation_is_found_and_named(name: str) -> None:
    planted = PLANTS[name]()
    found = check(planted.run).violations
    named = [
        v for v in found if v.rule == planted.rule and (v.worker, v.epoch, v.step) == (planted.worker, *planted.place)
    ]
    assert named, found
    if planted.event is not None:
        assert planted.event["event"] in {violation.event for violation in named}
    # What else is wrong with such a trace, and nothing more.
    assert {violation.rule for violation in found} == {planted.rule, *planted.others}
    said = [
        f"{v.rule} (worker {v.worker}, epoch {v.epoch}, step {v.step}, event {v.event}): {v.sentence}" for v in found
    ]
    assert said == VIOLATIONS[name]
    # It is that rule which finds it.
    without = check(planted.run, [rule for rule in RULES if rule != planted.rule]).violations
    assert {violation.rule for violation in without} == planted.others


def test_every_rule_has_a_violation_that_it_must_find() -> None:
    assert {plant().rule for plant in PLANTS.values()} == set(RULES)

"""From what the command line gave to a complete plan."""

from typing import Any

import pytest

from slslab.execution import architectures, make_plan

# The command line's own default.
GIVEN = {"dataset": "digits"}


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
    ],
)
def test_as_released_is_what_the_options_say_and_a_given_one_wins(name: str, chosen: dict[str, Any]) -> None:
    architecture = architectures()[name]
    assert make_plan(architecture, GIVEN, {}).options == {}
    assert make_plan(architecture, GIVEN | {"as_released": True}, {}).options == chosen
    option = next(iter(chosen))
    assert make_plan(architecture, GIVEN | {"as_released": True}, {option: "mine"}).options == chosen | {option: "mine"}

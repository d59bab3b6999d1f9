"""What must be the same on a node: each difference is named in one sentence."""

import pytest

from slslab.installation import __version__
from slslab_ray.node_facts import collect_facts, difference


def test_a_host_does_not_differ_from_itself() -> None:
    assert difference(collect_facts(), collect_facts()) == ""


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"slslab": ""}, "slslab is not installed there"),
        ({"slslab": "0.0.1"}, "it has slslab 0.0.1, but this host has "),
        ({"python": "3.9.1"}, "it has Python 3.9.1, but this host has "),
        ({"code": "other"}, f"its slslab {__version__} differs from this host's code"),
        ({"machine": "sparc"}, "it has a processor of kind sparc, but this host has "),
    ],
)
def test_a_difference_is_named(changed: dict[str, str], says: str) -> None:
    own = collect_facts()
    assert difference(own, own | changed).startswith(says)

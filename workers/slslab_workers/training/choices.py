"""Look up what an option's value names."""

from collections.abc import Mapping
from typing import TypeVar

from slslab_workers.plan import PlanError

Choice = TypeVar("Choice")


def choose(kind: str, name: str, choices: Mapping[str, Choice]) -> Choice:
    """Return the choice of this name; raise PlanError, with the names there are, if there is none."""
    if name not in choices:
        raise PlanError(f"There is no {kind} {name!r}.", f"choose {', '.join(choices)}.")
    return choices[name]

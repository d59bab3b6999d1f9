"""An option of an architecture, as the command line offers it, and the choice that its value names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from slslab_workers.plan import KINDS, Plan, PlanError, Value

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Option:
    """One option of an architecture: its name on the command line, type, default, help and, if limited, its choices.

    `released` is the value that `--as-released` chooses, if the authors' code differs from the default. With `memory`,
    the value is a function's memory size, MB; 0 chooses the size that a plan needs (`needed_mb`). `chosen` is what
    slslab says of a chosen size that doesn't exist: what needs it, and what the user can do. `check_text` is
    called with the value as text, and raises PlanError if the option can't have it; its result is ignored.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[bool]
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    released: Value | None = None
    memory: bool = False
    needed_mb: Callable[[Plan], int] = lambda _plan: 0
    chosen: tuple[str, str] = ("functions of the plan need", "change the plan")
    check_text: Callable[[str], object] = lambda _text: None

    def of(self, options: Mapping[str, Value]) -> Value:
        """Return this option's value in a plan's options, or the default if their architecture lacks it."""
        return options.get(self.name, self.default)

    def size_mb(self, plan: Plan) -> int:
        """Return the memory size of the plan's functions that the option sets or chooses, MB; 0 if there are none."""
        return int(self.of(plan.options)) or self.needed_mb(plan)

    def check(self, value: Value) -> None:
        """Raise PlanError if the option can't have this value."""
        if self.choices:
            fits, hint = value in self.choices, f"choose one of {', '.join(self.choices)}."
        else:
            # TOML and JSON store an infinite number as text.
            fits = type(value) in KINDS[self.type] or (self.type is float and value in (self.default, "inf"))
            hint = f"give a value of type {self.type.__name__}."
        if fits and self.memory and int(value) < bool(self.default):
            fits, hint = False, f"give a memory size, MB{'' if self.default else ', or 0 to have it chosen'}."
        if not fits:
            raise PlanError(f"The option {self.name} cannot be {value!r}.", hint)
        self.check_text(str(value))


def choose(kind: str, name: str, choices: Mapping[str, Choice]) -> Choice:
    """Return the choice with this name; raise PlanError, which lists the names, for an unknown one."""
    if name not in choices:
        raise PlanError(f"There is no {kind} {name!r}.", f"choose {', '.join(choices)}.")
    return choices[name]

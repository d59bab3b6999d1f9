"""Limits of an account: Lambda's defaults, those that a new account has, or those in a file."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from slslab.aws.limits import Limits, Range, lambda_limits
from slslab.errors import RequestError
from slslab.toml_files import read_toml

DEFAULT, NEW = "default", "new"
LEAST, MOST = 1e-3, 1e15
LEAST_OF = {"unreserved_concurrency": 0.0}


def account_limits(account: str, changes: Mapping[str, Any] | None = None) -> Limits:
    """Return the limits of an account: `default`, `new`, or a TOML file; `changes` are others by name.

    Raises RequestError for an account that cannot be read, an unknown limit, or a number that it cannot have.
    """
    return changed_limits(lambda_limits(), {**_account(account), **(changes or {})})


def changed_limits(limits: Limits, changes: Mapping[str, Any]) -> Limits:
    """Return limits with some replaced, given as numbers or as text; of a range it is the maximum."""
    return limits.changed(**{name: _limit(limits, name, value) for name, value in changes.items()})


def _account(account: str) -> dict[str, Any]:
    if account == DEFAULT:
        return {}
    with as_file(files("slslab.aws") / "accounts.toml") as known:
        if account == NEW:
            return dict(read_toml(known, "account", (DEFAULT, NEW), RequestError)[NEW])
    return read_toml(Path(account), "account", (DEFAULT, NEW), RequestError)


def _limit(limits: Limits, name: str, value: Any) -> int | float | Range:
    before = getattr(limits, name, None)
    if not isinstance(before, int | float | Range):
        raise RequestError(f"There is no limit {name!r} that can be changed.", "`slslab limits` lists them.")
    try:
        number = float(value)
        if not (name.endswith("_s") and not isinstance(before, Range)):
            number = int(value)
            if isinstance(value, bool) or number != float(value):
                raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise RequestError(f"The limit {name} needs a number, not {str(value)[:40]!r}.", f"{name} = 10") from None
    most = before.maximum if isinstance(before, Range) else MOST
    least = before.minimum if isinstance(before, Range) else LEAST_OF.get(name, LEAST)
    if not least <= number <= most:
        raise RequestError(
            f"The limit {name} cannot be {str(value)[:40]}.", f"choose a number from {least:g} to {most:g}."
        )
    if isinstance(before, Range):
        return replace(before, maximum=int(number), default=min(before.default, int(number)))
    return number

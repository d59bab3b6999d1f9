"""Read the limits of an account: Lambda's defaults, a new account's, or a file's."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slslab.aws.limits import Limits, Range, lambda_limits
from slslab.errors import RequestError
from slslab.toml_files import read_toml

DEFAULT, NEW = "default", "new"
LEAST, MOST = 1e-3, 1e15
LEAST_OF = {"unreserved_concurrency": 0.0}


def account_limits(account: str, changes: Mapping[str, Any] | None = None) -> Limits:
    """Return the limits of an account: `default`, `new`, or a TOML file.

    `changes` replaces some by name, given as numbers or text; of a range, it replaces the maximum. Raises RequestError
    for an account that can't be read, an unknown limit, or an invalid number.
    """
    limits, changes = lambda_limits(), {**_account(account), **(changes or {})}
    return limits.changed(**{name: _limit(limits, name, value) for name, value in changes.items()})


def _account(account: str) -> dict[str, Any]:
    if account == DEFAULT:
        return {}
    if account == NEW:
        return dict(read_toml(Path(__file__).with_name("accounts.toml"), "account", (DEFAULT, NEW))[NEW])
    return read_toml(Path(account), "account", (DEFAULT, NEW))


def _limit(limits: Limits, name: str, value: Any) -> int | float | Range:
    before = getattr(limits, name, None)
    if not isinstance(before, int | float | Range):
        raise RequestError(f"There is no limit {name!r} that can be changed.", "`slslab limits` lists them.")
    kind, read = ("number", float) if name.endswith("_s") and not isinstance(before, Range) else ("whole number", int)
    try:
        number = read(str(value))  # Python would also accept 10.9, inf and true as a number
    except ValueError:
        raise RequestError(f"The limit {name} needs a {kind}, not {str(value)[:40]!r}.", f"{name} = 10") from None
    most = before.maximum if isinstance(before, Range) else MOST
    least = before.minimum if isinstance(before, Range) else LEAST_OF.get(name, LEAST)
    if not least <= number <= most:
        raise RequestError(
            f"The limit {name} cannot be {str(value)[:40]}.", f"choose a number from {least:g} to {most:g}."
        )
    if not isinstance(before, Range):
        return number
    return replace(before, maximum=int(number), default=min(before.default, int(number)))

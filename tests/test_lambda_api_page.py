"""docs/lambda-api.md lists the operations that there are."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from slslab.aws.requests import service_model
from slslab.lambda_ import service

PAGE = Path(__file__).parents[1] / "docs" / "lambda-api.md"


def handled() -> list[str]:
    """The operations of all groups."""
    found: list[str] = []
    for module in iter_modules(service.__path__):
        name = f"{service.__name__}.{module.name}"
        for value in vars(import_module(name)).values():
            if isinstance(value, type) and value.__module__ == name and hasattr(value, "handlers"):
                # What a group works on is not asked for its names.
                group: Any = object.__new__(value)
                found += group.handlers()
    return found


def test_the_page_lists_every_operation_once() -> None:
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    listed = re.findall(r"`(\w+)`", "\n".join(table))
    assert sorted(listed) == sorted(handled())
    assert set(listed) <= set(service_model("lambda").operation_names)

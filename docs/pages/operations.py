"""A page's table of a service's operations: which are emulated, stored without effect, or refused."""

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from docs.pages.markdown import insert, table

from slslab.aws.requests import own_models
from slslab.lambda_ import emulator

BEGIN, END = "<!-- operations: `python -m docs.build` writes them -->", "<!-- end of operations -->"


def insert_operations(
    page: Path,
    service: str,
    emulated: Collection[str],
    refusal: str,
    stored: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    refusals: Mapping[str, str] | None = None,
) -> str:
    """Return a page with the table of a service's operations between its marks; see `describe_operations`."""
    operations = describe_operations(service, emulated, refusal, stored or {}, notes or {}, refusals or {})
    return insert(page, BEGIN, END, operations)


def describe_operations(
    service: str,
    emulated: Collection[str],
    refusal: str,
    stored: Mapping[str, str],
    notes: Mapping[str, str],
    refusals: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a table of all operations in botocore's model of a service.

    `stored` says why an operation is only stored, `notes` adds to an emulated one, `refusals` gives the error of some
    operations, `refusal` the error of all others. ValueError for an operation that the model lacks, or that is in two
    of them.
    """
    model = sorted(own_models().load_service_model(service, "service-2")["operations"])
    if unknown := sorted({*emulated, *stored, *notes, *refusals} - {*model}):
        raise ValueError(f"botocore's model of {service} has no operation {unknown[0]}")
    if both := sorted({*emulated} & {*stored, *refusals}) or sorted({*notes} - {*emulated}):
        raise ValueError(f"{both[0]} is not emulated, or stored as well")
    rows = []
    for operation in model:
        if operation in stored:
            here = f"kept without effect: {stored[operation]}"
        elif operation in emulated:
            here = f"emulated: {notes[operation]}" if operation in notes else "emulated"
        else:
            here = f"refused: {refusals.get(operation, refusal)}"
        rows.append((f"`{operation}`", here))
    return table(("operation", "here"), rows)


def lambda_operations() -> list[str]:
    """Return the operations of Lambda that a group of handlers answers."""
    found: list[str] = []
    for value in vars(emulator).values():
        if isinstance(value, type) and hasattr(value, "handlers"):
            # What a group works on is not asked for its names.
            group: Any = object.__new__(value)
            found += group.handlers()
    return found

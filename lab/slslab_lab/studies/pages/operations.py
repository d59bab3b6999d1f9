"""The table of a service's operations in a page: which are emulated, which only keep what they are given, which not."""

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slslab.aws.requests import own_models
from slslab.lambda_ import emulator
from slslab_lab.studies.pages.markdown import insert, table

BEGIN, END = "<!-- operations: `python docs/build.py` writes them -->", "<!-- end of operations -->"


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

    `stored` says why an operation only keeps what it is given, `notes` what is to be said of an emulated one,
    `refusals` which error some answer, `refusal` which the others do. ValueError for an operation that the model lacks,
    or that stands in two places.
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

"""The lists of a service's operations in docs/services.md: emulated or refused."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from docs.pages.markdown import code

from slslab.aws.requests import own_models
from slslab.lambda_ import emulator
from slslab.report.page import Part


def describe_operations(
    service: str, emulated: Collection[str], refusal: str, notes: Mapping[str, str]
) -> Iterator[Part]:
    """Yield lists of all operations in botocore's model of a service.

    `notes` adds to an emulated operation, `refusal` is the error of all others. ValueError for an operation that the
    model lacks, or for a note on one that isn't emulated.
    """
    model = sorted(own_models().load_service_model(service, "service-2")["operations"])
    if unknown := sorted({*emulated, *notes} - {*model}):
        raise ValueError(f"botocore's model of {service} has no operation {unknown[0]}")
    if refused := sorted({*notes} - {*emulated}):
        raise ValueError(f"{refused[0]} is not emulated")
    yield f"**Emulated**: {_names(sorted({*emulated} - {*notes}))}."
    yield "**Emulated, with a difference**:"
    # Operations with the same remark are one line.
    remarks = groupby(sorted(notes, key=lambda name: (notes[name], name)), key=notes.__getitem__)
    yield "\n".join(sorted(f"{_names(names)}: {remark}" for remark, names in remarks))
    yield f"**Refused** with {refusal}: {_names(name for name in model if name not in emulated)}."


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def lambda_operations() -> list[str]:
    """Return the operations of Lambda that a group of handlers answers."""
    groups: list[Any] = [
        value for value in vars(emulator).values() if isinstance(value, type) and hasattr(value, "handlers")
    ]
    # What a group works on is not asked for its names.
    return [name for group in groups for name in object.__new__(group).handlers()]

"""A page's lists of a service's operations: emulated or refused."""

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any

from docs.pages.markdown import code, insert, paragraph

from slslab.aws.requests import own_models
from slslab.lambda_ import emulator

NONE: Mapping[str, str] = MappingProxyType({})


def insert_operations(
    text: str, service: str, emulated: Collection[str], refusal: str, notes: Mapping[str, str] = NONE
) -> str:
    """Return the text of a page with the lists of a service's operations between its marks; see `describe_operations`.

    ValueError if the page lacks the marks.
    """
    operations = describe_operations(service, emulated, refusal, notes)
    return insert(text, *marks(service), operations)


def marks(service: str) -> tuple[str, str]:
    """Return the lines before and after the lists of a service."""
    begin = f"<!-- operations of {service}: `python -m docs.build` writes them -->"
    return begin, f"<!-- end of the operations of {service} -->"


def describe_operations(service: str, emulated: Collection[str], refusal: str, notes: Mapping[str, str] = NONE) -> str:
    """Return lists of all operations in botocore's model of a service.

    `notes` adds to an emulated operation, `refusal` is the error of all others. ValueError for an operation that the
    model lacks, or for a note on one that isn't emulated.
    """
    model = sorted(own_models().load_service_model(service, "service-2")["operations"])
    if unknown := sorted({*emulated, *notes} - {*model}):
        raise ValueError(f"botocore's model of {service} has no operation {unknown[0]}")
    if refused := sorted({*notes} - {*emulated}):
        raise ValueError(f"{refused[0]} is not emulated")
    others = [name for name in model if name not in emulated]
    parts = [
        paragraph(f"**Emulated**: {_names(sorted({*emulated} - {*notes}))}."),
        *_listed("Emulated, with a difference", notes),
        paragraph(f"**Refused** with {refusal}: {_names(others)}."),
    ]
    return "\n\n".join(parts)


def _listed(title: str, operations: Mapping[str, str]) -> Iterator[str]:
    """Yield the title and the list of operations, those with the same remark in one line."""
    if operations:
        remarks = groupby(sorted(operations, key=lambda name: (operations[name], name)), key=operations.__getitem__)
        yield f"**{title}**:"
        yield "\n".join(sorted(f"- {_names(names)}: {remark}" for remark, names in remarks))


def _names(names: Collection[str] | Iterator[str]) -> str:
    return ", ".join(map(code, names))


def lambda_operations() -> list[str]:
    """Return the operations of Lambda that a group of handlers answers."""
    found: list[str] = []
    for value in vars(emulator).values():
        if isinstance(value, type) and hasattr(value, "handlers"):
            # What a group works on is not asked for its names.
            group: Any = object.__new__(value)
            found += group.handlers()
    return found

"""Check EC2 instance types against a price book, and make ids in EC2's format."""

import secrets

from slslab.errors import RequestError
from slslab.run.bill import HOST, Book
from slslab_workers.architecture import Fleet


def check_fleet(fleet: Fleet, book: Book) -> None:
    """Raise RequestError for an instance type that the price book can't bill."""
    if HOST + fleet.instance_type not in book.prices:
        hosts = [meter.removeprefix(HOST) for meter in book.prices if meter.startswith(HOST)]
        raise RequestError(
            f"The price book {book.name} has no instance type {fleet.instance_type!r}.",
            f"it has {', '.join(hosts) or 'none'}.",
        )


def instance_id() -> str:
    """Return a new id that looks like EC2's."""
    return f"i-{secrets.token_hex(9)[:17]}"

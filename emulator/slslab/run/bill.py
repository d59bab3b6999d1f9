"""Bills: what metered usage costs by the prices of a dated book.

Money and quantities are exact decimals, never floats: every amount is its quantity times its unit price, and the total
is the sum of the amounts, digit for digit. Rounding happens in one place only: the unit price, if a book's listed
price doesn't divide evenly: 0.526 per hour is 0.00014611111111111111111 per second, 20 significant digits, half to
even. Code that displays a bill rounds for display.

A bill treats its run as the only one of a month, so tiers start at zero. Free tiers belong to an account and a month:
the book lists them, but they aren't applied.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import ROUND_CEILING, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow, localcontext
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BeforeValidator, Field, StringConstraints, field_validator

# pydantic can check TypedDicts from `typing` only from Python 3.12 on.
from typing_extensions import TypedDict

from slslab.toml_files import DataFiles, TomlTable
from slslab_workers.plan import Plan
from slslab_workers.trace.operations import BILLED, OPERATIONS

PRICES = Path(__file__).parent / "prices"
DEFAULT_BOOK = Plan.prices
Hosts = tuple[tuple[str, int | Decimal], ...]
FREE_EPHEMERAL_MB = 512  # documented: AWS Lambda pricing, "at no additional cost"
OBJECT_OPERATIONS = tuple(BILLED)
ARCHITECTURES = ("x86_64", "arm64")

METERS = {
    "lambda.duration.x86_64": ("Lambda duration, x86_64", "GB-second"),
    "lambda.duration.arm64": ("Lambda duration, arm64", "GB-second"),
    "lambda.requests": ("Lambda requests", "request"),
    "lambda.ephemeral": ("Lambda ephemeral storage above 512 MB", "GB-second"),
    **{
        op: (line, "request unit" if OPERATIONS[op].channel == "dynamodb" else "request") for op, line in BILLED.items()
    },
    "states.transitions": (OPERATIONS["transition"].billed, "transition"),
    "container.vcpu": ("vCPUs of containers", "vCPU-second"),
    "container.memory": ("Memory of containers", "GiB-second"),
}
HOST, GPU = "host.", "gpu."

# Traps turn every digit that would be lost into an exception, so results are exact.
_EXACT = Context(prec=1000, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
_UNIT_PRICE = Context(prec=20)
_PRICE = re.compile(r"[0-9]{1,8}(\.[0-9]{1,12})?")


def _parse_price(value: object) -> Decimal:
    if not isinstance(value, str) or not _PRICE.fullmatch(value):
        raise ValueError(f'a price is a decimal in quotes such as "0.0000166667", not {value!r}')
    return Decimal(value)


def describe_meter(meter: str) -> tuple[str, str]:
    """Return item and unit of a meter; hosts are `host.<instance type>` and a container's GPU is `gpu.<kind>`, in
    seconds. KeyError for an unknown meter."""
    if meter.startswith(GPU) and meter != GPU:
        return f"GPU {meter.removeprefix(GPU)}", "second"
    if meter.startswith(HOST) and meter != HOST:
        return f"Host {meter.removeprefix(HOST)}", "second"
    return METERS[meter]


class _Sourced(TomlTable, strict=True):
    source: Annotated[str, Field(min_length=1)]
    status: Literal["documented", "assumed"]


class Rate(_Sourced):
    """A price and its source."""

    price: Annotated[Decimal, BeforeValidator(_parse_price)]


class Tier(Rate):
    """The price of usage above a monthly quantity, up to the next tier."""

    above: Annotated[int, Field(gt=0)]


class Figure(_Sourced):
    """A figure of a host, and its source."""

    value: Annotated[Decimal, BeforeValidator(_parse_price), Field(gt=0)]


class Price(Rate):
    """The `price` of `per` units of one meter; with a `minimum`, a launch is billed in whole units, at least that.

    A host that AWS bills by periods that have begun has a period of `begun_s` seconds. `memory_gib` is a host's memory.
    """

    unit: str
    per: Annotated[int, Field(gt=0)] = 1
    minimum: Annotated[int, Field(ge=0)] | None = None
    begun_s: Figure | None = None
    memory_gib: Figure | None = None
    tiers: Annotated[tuple[Tier, ...], Field(strict=False)] = ()

    @field_validator("tiers")
    @classmethod
    def _ascend(cls, tiers: tuple[Tier, ...]) -> tuple[Tier, ...]:
        if any(lower.above >= upper.above for lower, upper in pairwise(tiers)):
            raise ValueError("tiers must rise strictly")
        return tiers


class Book(TomlTable, strict=True):
    """A dated list of prices, each with its source; `gb_mb` is the number of MB in the book's GB.

    `free_tier` lists for readers of the file what an account gets free each month; nothing reads it.
    """

    name: Annotated[str, Field(min_length=1)]
    date: date
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")]
    gb_mb: Literal[1000, 1024]
    prices: dict[str, Price]
    free_tier: Any = ()

    @field_validator("prices")
    @classmethod
    def _meters(cls, prices: dict[str, Price]) -> dict[str, Price]:
        for meter, price in prices.items():
            try:
                _, unit = describe_meter(meter)
            except KeyError:
                raise ValueError(f"{meter} is not something this program meters") from None
            if price.unit != unit:
                raise ValueError(f"{meter} is metered per {unit}, not per {price.unit}")
            launched = price.minimum, price.begun_s, price.memory_gib
            if launched != (None, None, None) and not meter.startswith(HOST):
                raise ValueError(f"{meter} cannot have a minimum, begun_s or memory_gib: only hosts are launched")
            if price.minimum is not None and price.begun_s is not None:
                raise ValueError(f"{meter} cannot have both a minimum and begun_s")
        return prices


_FILES = DataFiles(Book, "price book", PRICES)
book_names, load_book = _FILES.names, _FILES.load


@dataclass(frozen=True)
class Usage:
    """What a run used, by meter.

    `invocations` are metered records. Their `memory_mb`, `billed_ms`, `architecture`, `ephemeral_mb` and `requests` (by
    default 1) count. `object_requests` counts S3 requests by op (object.put, object.list, object.get, object.delete)
    DynamoDB's request units (dynamodb.put, …) and SQS's requests (sqs.request, …). S3 bills 4xx answers, too (S3 user
    guide, "Billing for Amazon S3 error responses"), so a failed get is a get. RabbitMQ messages, and requests to
    Memcached and Redis, cost only the host. `hosts` holds one (instance type, seconds) for each launch, seconds as int
    or Decimal. `service_hosts` holds the same for databases, queues and channels; their instance types are assumed.
    `containers` holds (meter, quantity) of containers with GPUs while they run, `idle` the same while they wait for an
    invocation that doesn't come.
    """

    invocations: Sequence[Mapping[str, Any]] = ()
    object_requests: Mapping[str, int] = field(default_factory=dict)
    transitions: int = 0
    hosts: Hosts = ()
    service_hosts: Hosts = ()
    containers: Hosts = ()
    idle: Hosts = ()


@dataclass(frozen=True)
class Unpriced:
    """Usage that the book has no price for."""

    item: str
    quantity: Decimal
    unit: str


@dataclass(frozen=True)
class Line(Unpriced):
    """A line of a bill; amount = quantity × price exactly.

    `status` is documented or assumed (the price); `assumed` is true if no paper names the type of this host.
    """

    price: Decimal
    amount: Decimal
    status: str
    assumed: bool = False


# Decimals in a document are strings.
Decimals = Annotated[str, StringConstraints(pattern=r"^-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?$")]


class NotBilled(TypedDict):
    """Usage that the book has no price for; decimals are strings."""

    item: str
    quantity: Decimals
    unit: str


class BillLine(NotBilled):
    """What one meter costs.

    `status` tells whether the price is documented or assumed. `assumed` exists, and is true, only if no paper names the
    type of a database's or queue's host.
    """

    price: Decimals
    amount: Decimals
    status: str
    assumed: NotRequired[bool]


class Dated(TypedDict):
    """The name and date of a price book or a profile."""

    name: str
    date: str


class Cost(TypedDict):
    """What usage costs; `notes` are caveats for readers (a bill of Lambda lacks them).

    `total_alone` exists if a run that has its hosts to itself costs more than the total (`Bill.alone`).
    """

    book: Dated
    currency: str
    total: Decimals
    total_alone: NotRequired[Decimals]
    lines: list[BillLine]
    not_billed: list[NotBilled]
    notes: NotRequired[list[str]]


@dataclass(frozen=True)
class Bill:
    """The lines of a bill, and usage that its book doesn't price.

    They have the run's share of hosts that are always on, by the second. `alone` is the total if the run has its hosts
    to itself, so that it pays for each period of a host that has begun.
    """

    book: Book
    lines: tuple[Line, ...]
    not_billed: tuple[Unpriced, ...]
    alone: Decimal

    @property
    def total(self) -> Decimal:
        """Return the exact sum of the amounts."""
        with localcontext(_EXACT):
            return sum((line.amount for line in self.lines), Decimal(0))

    def as_document(self) -> dict[str, Any]:
        """Return a mapping safe for JSON, every decimal a plain string (`Cost`)."""
        return {
            "book": {"name": self.book.name, "date": self.book.date.isoformat()},
            "currency": self.book.currency,
            "total": _plain(self.total),
            **({"total_alone": _plain(self.alone)} if self.alone != self.total else {}),
            "lines": [_document(line) for line in self.lines],
            "not_billed": [_document(left_out) for left_out in self.not_billed],
        }


def is_of_container(line: Line) -> bool:
    """Return whether a line counts what containers with GPUs use."""
    return line.item.startswith("GPU ") or line.item in (METERS["container.vcpu"][0], METERS["container.memory"][0])


def compute_bill(usage: Usage, book: Book) -> Bill:
    """Return the bill of this usage by this book: a line for each meter that was used, and each tier that it reaches.

    `not_billed` lists usage without a price.
    """
    lines: list[Line] = []
    not_billed: list[Unpriced] = []
    assumed = {HOST + instance_type for instance_type, _ in usage.service_hosts}
    with localcontext(_EXACT):
        for meter, quantity in _meter(usage, book).items():
            item, unit = describe_meter(meter)
            if not quantity:
                continue
            if meter in book.prices:
                split = _split_by_tier(item, quantity, book.prices[meter])
                lines += (replace(line, assumed=meter in assumed) for line in split)
            else:
                not_billed.append(Unpriced(item, quantity, unit))
        alone = sum((line.amount for line in lines), Decimal(0))
        for instance_type, seconds in (*usage.service_hosts, *usage.hosts):
            alone += _rest_of_period(book.prices.get(HOST + instance_type), Decimal(seconds))
    return Bill(book, tuple(lines), tuple(not_billed), alone)


def total_alone(cost: Mapping[str, Any]) -> Decimal:
    """Return the total of a stored `Cost` if the run has its hosts to itself.

    Earlier versions didn't store it. It is computed by the cost's book then, if that is a built-in one: in other books,
    no host was billed by periods that have begun.
    """
    if "total_alone" in cost:
        return Decimal(cost["total_alone"])
    name, total = cost["book"]["name"], Decimal(cost["total"])
    if name not in book_names():
        return total
    prices, hosts = load_book(name).prices, "Host "
    lines = [line for line in cost["lines"] if line["item"].startswith(hosts)]
    with localcontext(_EXACT):
        rests = (
            _rest_of_period(prices.get(HOST + line["item"].removeprefix(hosts)), Decimal(line["quantity"]))
            for line in lines
        )
        return sum(rests, total)


def _rest_of_period(price: Price | None, seconds: Decimal) -> Decimal:
    """Return the price of the rest of a host's period that has begun."""
    if price is None or price.begun_s is None:
        return Decimal(0)
    begun = seconds % price.begun_s.value
    return (price.begun_s.value - begun if begun else 0) * _unit_price(price, price)


def _meter(usage: Usage, book: Book) -> dict[str, Decimal]:
    """Return the quantity of each meter, in the order of a bill."""
    # GB-seconds are counted in MB and ms.
    counts = Counter({**usage.object_requests, "states.transitions": usage.transitions})
    for record in usage.invocations:
        counts[f"lambda.duration.{record['architecture']}"] += record["memory_mb"] * record["billed_ms"]
        counts["lambda.ephemeral"] += max(0, record["ephemeral_mb"] - FREE_EPHEMERAL_MB) * record["billed_ms"]
        # Earlier versions recorded no requests; their payloads were small.
        counts["lambda.requests"] += record.get("requests", 1)
    if unknown := counts.keys() - METERS.keys():
        raise ValueError(f"Nothing meters {', '.join(sorted(unknown))}.")
    quantities = {
        # Dividing by 1000 or 1024 MB and 1000 ms gives finite decimals: both are products of twos and fives.
        meter: Decimal(counts[meter]) / (book.gb_mb * 1000 if unit == "GB-second" else 1)
        for meter, (_, unit) in METERS.items()
    }
    for instance_type, seconds in (*usage.service_hosts, *usage.hosts):
        meter = HOST + instance_type
        billed = _launch(seconds, book.prices.get(meter))
        quantities[meter] = quantities.get(meter, Decimal(0)) + billed
    for meter, quantity in (*usage.containers, *usage.idle):
        quantities[meter] = quantities.get(meter, Decimal(0)) + quantity
    return quantities


def _launch(seconds: int | Decimal, price: Price | None) -> Decimal:
    exact = Decimal(seconds)
    if price is None or price.minimum is None:
        return exact
    return max(Decimal(price.minimum), exact.to_integral_value(ROUND_CEILING))


def _split_by_tier(item: str, quantity: Decimal, price: Price) -> Iterator[Line]:
    steps: list[tuple[int, Rate]] = [(0, price), *((tier.above, tier) for tier in price.tiers)]
    ends = [Decimal(tier.above) for tier in price.tiers] + [quantity]
    for (start, step), end in zip(steps, ends, strict=True):
        part = min(quantity, end) - start
        if part > 0:
            each = _unit_price(step, price)
            yield Line(item, part, price.unit, each, part * each, step.status)


def _unit_price(step: Rate, price: Price) -> Decimal:
    return _UNIT_PRICE.divide(step.price, Decimal(price.per))


def _plain(number: Decimal) -> str:
    """Return the number without exponent and trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _document(entry: Unpriced) -> dict[str, str | bool]:
    """Return the entry safe for JSON; `assumed` only if it is true."""
    values = {name: _plain(value) if isinstance(value, Decimal) else value for name, value in vars(entry).items()}
    return {name: value for name, value in values.items() if value is not False}

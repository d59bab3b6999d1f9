"""Bills: golden cases, the published table, and the laws that every bill keeps."""

import json
import locale
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab.errors import RequestError
from slslab.run.bill import (
    ARCHITECTURES,
    METERS,
    OBJECT_OPERATIONS,
    Bill,
    Book,
    Usage,
    book_names,
    compute_bill,
    is_of_container,
    load_book,
    total_alone,
)

AWS = load_book("aws-us-east-1")
PAPER = load_book("paper-2025")
BOOKS = st.sampled_from([AWS, PAPER])


def record(
    memory_mb: int = 1769, billed_ms: int = 1000, architecture: str = "x86_64", ephemeral_mb: int = 512
) -> dict[str, Any]:
    return {
        "request_id": "11111111-2222-3333-4444-555555555555",
        "memory_mb": memory_mb,
        "billed_ms": billed_ms,
        "architecture": architecture,
        "ephemeral_mb": ephemeral_mb,
    }


def amounts(bill: Bill) -> dict[str, str]:
    return {line["item"]: line["amount"] for line in bill.as_document()["lines"]}


RECORDS = st.builds(
    record,
    memory_mb=st.integers(128, 10_240),
    billed_ms=st.integers(0, 900_000),
    architecture=st.sampled_from(ARCHITECTURES),
    ephemeral_mb=st.integers(512, 10_240),
)
SECONDS = st.integers(0, 10**6) | st.decimals(0, 10**6, places=9)
COUNTS = st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    invocations=st.lists(RECORDS, max_size=4),
    object_requests=st.dictionaries(st.sampled_from(OBJECT_OPERATIONS), COUNTS),
    transitions=COUNTS,
    service_hosts=st.lists(st.tuples(st.just("mq.m5.large"), SECONDS), max_size=2).map(tuple),
    hosts=st.lists(st.tuples(st.sampled_from(["g4dn.xlarge", "mq.m5.large", "no.price"]), SECONDS), max_size=3).map(
        tuple
    ),
)


def together(first: Usage, second: Usage) -> Usage:
    return Usage(
        (*first.invocations, *second.invocations),
        {op: first.object_requests.get(op, 0) + second.object_requests.get(op, 0) for op in OBJECT_OPERATIONS},
        first.transitions + second.transitions,
        first.hosts + second.hosts,
        first.service_hosts + second.service_hosts,
    )


# Golden cases, computed by hand from the list prices.


def test_a_bill_of_everything() -> None:
    usage = Usage(
        invocations=[record(1024, 1000), record(2048, 500, "arm64", ephemeral_mb=1536)],
        object_requests={"object.put": 1000, "object.list": 200, "object.get": 5000, "object.delete": 7},
        transitions=128,
        hosts=(("t4g.medium", 100), ("mq.m5.large", 3600)),
    )
    bill = compute_bill(usage, AWS)
    assert amounts(bill) == {
        "Lambda duration, x86_64": "0.0000166667",
        "Lambda duration, arm64": "0.0000133334",
        "Lambda requests": "0.0000004",
        "Lambda ephemeral storage above 512 MB": "0.00000001545",
        "S3 PUT requests": "0.005",
        "S3 LIST requests": "0.001",
        "S3 GET requests": "0.002",
        "S3 DELETE requests": "0",
        "Step Functions state transitions": "0.0032",
        "Host t4g.medium": "0.00093333333333333333333",
        "Host mq.m5.large": "0.288",
    }
    assert bill.not_billed == ()
    assert bill.as_document()["total"] == "0.30016374888333333333333"


def test_an_invocation_may_be_several_requests() -> None:
    usage = Usage([record(1024, 1000), {**record(1024, 1000), "requests": 13}])
    assert amounts(compute_bill(usage, AWS))["Lambda requests"] == "0.0000028"


def test_hosts_of_databases_and_queues_are_assumed_whatever_is_known_of_their_price() -> None:
    usage = Usage(hosts=(("g4dn.xlarge", 60),), service_hosts=(("m5.large", 100), ("mq.t3.micro", 100)))
    lines = compute_bill(usage, AWS).as_document()["lines"]
    assert [(line["item"], line.get("assumed")) for line in lines] == [
        ("Host m5.large", True), ("Host mq.t3.micro", True), ("Host g4dn.xlarge", None),
    ]  # fmt: skip
    assert all(line["status"] == "assumed" for line in lines), "the prices themselves, of hosts of any kind"


def test_nothing_costs_nothing() -> None:
    document = compute_bill(Usage(), AWS).as_document()
    assert document == {
        "book": {"name": "aws-us-east-1", "date": "2026-11-21"},
        "currency": "USD",
        "total": "0",
        "lines": [],
        "not_billed": [],
    }


def test_one_millisecond_of_the_smallest_function_keeps_every_digit() -> None:
    (duration, _) = compute_bill(Usage([record(129, 1)]), AWS).as_document()["lines"]
    assert duration == {
        "item": "Lambda duration, x86_64",
        "quantity": "0.0001259765625",
        "unit": "GB-second",
        "price": "0.0000166667",
        "amount": "0.00000000209961357421875",
        "status": "documented",
    }


@pytest.mark.parametrize(
    ("seconds", "billed"), [(0, 60), (3, 60), (60, 60), (Decimal("60.001"), 61), (Decimal("3600"), 3600)]
)
def test_ec2_bills_whole_seconds_and_a_minute_at_least_for_each_launch(seconds: int | Decimal, billed: int) -> None:
    (line,) = compute_bill(Usage(hosts=(("g4dn.xlarge", seconds), ("g4dn.xlarge", seconds))), AWS).lines
    assert line.quantity == 2 * billed


@pytest.mark.parametrize(("seconds", "hours"), [(0, 0), (1, 1), (3600, 1), (Decimal("3600.001"), 2)])
def test_a_cache_of_its_own_is_billed_for_each_hour_that_it_begins(seconds: int | Decimal, hours: int) -> None:
    others = Usage([record()], hosts=(("g4dn.xlarge", 5),))
    usage = Usage([record()], hosts=(("g4dn.xlarge", 5),), service_hosts=(("cache.t3.medium", seconds),) * 2)
    bill = compute_bill(usage, AWS)
    assert round(bill.alone - compute_bill(others, AWS).total, 15) == 2 * hours * Decimal("0.068")
    assert ("total_alone" in bill.as_document()) is (hours * 3600 != seconds)
    assert bill.as_document().get("total_alone", bill.as_document()["total"]) == format(bill.alone, "f").rstrip("0")


def test_a_stored_bill_without_a_total_alone_has_that_of_its_book() -> None:
    usage = Usage([record()], hosts=(("g4dn.xlarge", 5),), service_hosts=(("cache.t3.medium", Decimal("11.034")),))
    bill = compute_bill(usage, AWS)
    stored = bill.as_document()
    assert total_alone(stored) == bill.alone
    del stored["total_alone"]
    assert total_alone(stored) == bill.alone > bill.total
    assert total_alone({**stored, "book": {"name": "own", "date": "2026-11-21"}}) == bill.total
    assert total_alone({**stored, "total_alone": "7"}) == 7


def test_a_long_quantity_is_exact() -> None:
    seconds = Decimal("0.1234567890123456789012345678901234567891")
    bill = compute_bill(Usage(service_hosts=(("cache.t3.medium", seconds),)), AWS)
    (line,) = bill.lines
    assert Fraction(line.amount) == Fraction(seconds) * Fraction(line.price)
    stored = bill.as_document()
    del stored["total_alone"]
    assert Fraction(bill.alone) == Fraction(total_alone(stored)) == 3600 * Fraction(line.price)
    assert isinstance(compute_bill(Usage(), AWS).alone, Decimal)


def test_an_hour_costs_the_hourly_price_to_fifteen_places() -> None:
    hosts = {meter.removeprefix("host."): price for meter, price in AWS.prices.items() if meter.startswith("host.")}
    assert hosts.keys() >= {"g4dn.xlarge", "t4g.medium", "mq.m5.large", "cache.t3.medium"}
    for host, price in hosts.items():
        assert round(compute_bill(Usage(hosts=((host, 3600),)), AWS).total, 15) == price.price


@pytest.mark.parametrize(
    ("architecture", "edges", "rates"),
    [
        ("x86_64", (6_000_000_000, 15_000_000_000), ("0.0000166667", "0.000015", "0.0000133334")),
        ("arm64", (7_500_000_000, 18_750_000_000), ("0.0000133334", "0.0000120001", "0.0000106667")),
    ],
)
def test_tiers_split_into_lines_and_continue_each_other(
    architecture: str, edges: tuple[int, int], rates: tuple[str, str, str]
) -> None:
    def lines(gb_ms: int) -> list[tuple[str, str]]:
        bill = compute_bill(Usage([record(1024, gb_ms, architecture)]), AWS)
        return [(str(line.price), str(line.quantity)) for line in bill.lines if line.unit == "GB-second"]

    first, second = edges
    assert lines(first * 1000) == [(rates[0], str(first))]
    assert lines(first * 1000 + 1) == [(rates[0], str(first)), (rates[1], "0.001")]
    assert lines(second * 1000 + 1) == [
        (rates[0], str(first)),
        (rates[1], str(second - first)),
        (rates[2], "0.001"),
    ]


def test_the_book_of_the_paper_names_what_it_leaves_out() -> None:
    usage = Usage([record(ephemeral_mb=1512)], {"object.get": 3}, transitions=128, hosts=(("t4g.medium", 5),))
    document = compute_bill(usage, PAPER).as_document()
    assert [line["item"] for line in document["lines"]] == ["Lambda duration, x86_64"]
    assert document["not_billed"] == [
        {"item": "Lambda requests", "quantity": "1", "unit": "request"},
        {"item": "Lambda ephemeral storage above 512 MB", "quantity": "1", "unit": "GB-second"},
        {"item": "S3 GET requests", "quantity": "3", "unit": "request"},
        {"item": "Step Functions state transitions", "quantity": "128", "unit": "transition"},
        {"item": "Host t4g.medium", "quantity": "5", "unit": "second"},
    ]


def test_the_book_of_aws_prices_every_meter() -> None:
    assert {meter for meter in METERS if not meter.startswith("container.")} <= set(AWS.prices)


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [("5", "5"), ("5.0", "5"), ("50.00", "50"), ("0.50", "0.5"), ("1E+2", "100"), ("100.010", "100.01")],
)
def test_quantities_are_printed_without_exponents_and_without_zeros_that_say_nothing(
    seconds: str, printed: str
) -> None:
    (left_out,) = compute_bill(Usage(hosts=(("t4g.medium", Decimal(seconds)),)), PAPER).as_document()["not_billed"]
    assert left_out["quantity"] == printed


# Table 2 of the paper, per epoch of 24 batches on 4 workers: seconds per function, MB, and the recomputed cost per
# function. Where the printed cost is further than 1 % from its own inputs, the paper is inconsistent with itself.


@pytest.mark.parametrize(
    ("seconds", "memory_mb", "recomputed", "printed", "consistent"),
    [
        pytest.param("15.44", 2685, "0.00069094", "0.000689", True, id="SPIRT MobileNet"),
        pytest.param("14.343", 2048, "0.00048958", "0.000442", False, id="ScatterReduce MobileNet"),
        pytest.param("14.382", 2048, "0.00049091", "0.000445", False, id="AllReduce MobileNet"),
        pytest.param("69.425", 3024, "0.00349903", "0.003496", True, id="MLLess MobileNet"),
        pytest.param("28.55", 3200, "0.00152267", "0.001523", True, id="SPIRT ResNet-18"),
        pytest.param("27.17", 2880, "0.00130416", "0.001302", True, id="ScatterReduce ResNet-18"),
        pytest.param("26.79", 2986, "0.00133325", "0.001382", False, id="AllReduce ResNet-18"),
        pytest.param("78.39", 3630, "0.00474260", "0.004737", True, id="MLLess ResNet-18"),
    ],
)
def test_table_2_functions(seconds: str, memory_mb: int, recomputed: str, printed: str, consistent: bool) -> None:
    billed_ms = int(Decimal(seconds) * 1000)
    one = compute_bill(Usage([record(memory_mb, billed_ms)]), PAPER).total
    assert one == Decimal(seconds) * memory_mb * Decimal("0.0000000166667")
    assert round(one, 8) == Decimal(recomputed)
    assert (abs(Decimal(printed) / one - 1) < Decimal("0.01")) is consistent
    assert compute_bill(Usage([record(memory_mb, billed_ms)] * 96), PAPER).total == 96 * one


@pytest.mark.parametrize(
    ("seconds", "worker", "total"),
    [(92, "0.01344", "0.0538"), (139, "0.0203", "0.0812")],
    ids=["MobileNet", "ResNet-18"],
)
def test_table_2_gpu(seconds: int, worker: str, total: str) -> None:
    one = compute_bill(Usage(hosts=(("g4dn.xlarge", seconds),)), PAPER).total
    four = compute_bill(Usage(hosts=(("g4dn.xlarge", seconds),) * 4), PAPER).total
    assert (str(round(one, len(worker) - 2)), str(round(four, 4))) == (worker, total)


# Laws.


@given(USAGES, BOOKS)
def test_lines_add_up_exactly_and_survive_json(usage: Usage, book: Book) -> None:
    bill = compute_bill(usage, book)
    document = json.loads(json.dumps(bill.as_document()))
    for line in document["lines"]:
        assert Fraction(line["amount"]) == Fraction(line["quantity"]) * Fraction(line["price"])
    assert Fraction(document["total"]) == sum(Fraction(line["amount"]) for line in document["lines"])
    numbers = [document["total"]] + [line[key] for line in document["lines"] for key in ("quantity", "price", "amount")]
    assert not any(set(number) - set("0123456789.") for number in numbers)


@given(st.lists(RECORDS, max_size=5), BOOKS)
def test_gb_seconds_are_exact(records: list[dict[str, Any]], book: Book) -> None:
    lines = compute_bill(Usage(records), book).lines
    billed = sum((Fraction(line.quantity) for line in lines if line.item.startswith("Lambda duration")), Fraction(0))
    assert billed == sum(Fraction(r["memory_mb"] * r["billed_ms"], book.gb_mb * 1000) for r in records)


@given(USAGES, USAGES, BOOKS)
def test_bills_below_the_tiers_add_up_so_more_never_costs_less(first: Usage, second: Usage, book: Book) -> None:
    parts = [compute_bill(part, book) for part in (first, second)]
    whole = compute_bill(together(first, second), book)
    assert Fraction(whole.total) == sum(Fraction(part.total) for part in parts)
    assert min(part.total for part in parts) >= 0


@given(USAGES, BOOKS, st.integers(1, 9))
def test_a_bill_scales_with_its_usage(usage: Usage, book: Book, times: int) -> None:
    many = Usage(
        tuple(usage.invocations) * times,
        {op: requests * times for op, requests in usage.object_requests.items()},
        usage.transitions * times,
        usage.hosts * times,
        usage.service_hosts * times,
    )
    assert Fraction(compute_bill(many, book).total) == times * Fraction(compute_bill(usage, book).total)


@given(st.integers(0, 4 * 10**10), st.integers(0, 10**10))
def test_above_the_tiers_more_still_costs_more_but_at_no_higher_rate(gb_seconds: int, more: int) -> None:
    def cost(count: int) -> Fraction:
        return Fraction(compute_bill(Usage([record(1024, count * 1000)]), AWS).total)

    assert more * Fraction("0.0000133334") <= cost(gb_seconds + more) - cost(gb_seconds) <= cost(more)


# What is refused.


def test_usage_that_nothing_meters_is_refused() -> None:
    usage = Usage([record(architecture="riscv")], {"object.rename": 1})
    with pytest.raises(ValueError, match=r"^Nothing meters lambda\.duration\.riscv, object\.rename\.$"):
        compute_bill(usage, AWS)


GOOD = """
name = "mine"
date = 2026-01-31
currency = "EUR"
gb_mb = 1024
[prices."lambda.requests"]
price = "0.20"
per = 1000000
unit = "request"
source = "a contract"
status = "documented"
tiers = [{above = 10, price = "0.10", source = "a contract", status = "assumed"}]
"""


def test_a_book_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    bill = compute_bill(Usage([record()] * 11), load_book(str(path)))
    assert (bill.book.name, bill.book.currency, str(bill.total)) == ("mine", "EUR", "0.0000021")
    assert [line.status for line in bill.lines] == ["documented", "assumed"]


def test_a_built_in_book_is_found_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["aws-us-east-1", "cloud-run", "lambda-managed", "modal", "paper-2025", "runpod"]
    assert [load_book(name).name for name in book_names()] == names


def test_a_book_with_a_base_has_its_prices_and_its_own(tmp_path: Path) -> None:
    modal, aws = load_book("modal"), load_book("aws-us-east-1")
    assert modal.prices["object.put"] == aws.prices["object.put"]
    assert modal.prices.keys() - aws.prices.keys() == {
        *("gpu.T4", "gpu.L4", "gpu.A10", "container.vcpu", "container.memory")
    }
    path = tmp_path / "mine.toml"
    for base, shown in (('"nowhere"', "'nowhere'"), ('["modal"]', r"\['modal'\]")):
        path.write_text(GOOD.replace("name =", f"base = {base}\nname =", 1))
        with pytest.raises(RequestError, match=f"{shown} isn't a built-in price book") as refused:
            load_book(path)
        assert refused.value.hint == f"use one of {', '.join(book_names())}."
    head = 'name = "mine"\nbase = "modal"\ndate = 2026-11-29\n'
    path.write_text(head)
    assert load_book(path).prices == modal.prices
    path.write_text(f"{head}prices = 3\n")
    with pytest.raises(RequestError, match="prices"):
        load_book(path)
    # AWS's page isn't the source of another price.
    path.write_text(f'{head}prices."lambda.requests" = {{ price = "0.30", unit = "request", per = 1_000_000 }}\n')
    with pytest.raises(RequestError, match=r"prices\.lambda\.requests\.source"):
        load_book(path)


def test_containers_are_billed_while_they_run_and_while_they_are_idle() -> None:
    used = (("gpu.T4", Decimal(100)), ("container.vcpu", Decimal(200)), ("container.memory", Decimal(800)))
    idle = (("gpu.T4", Decimal(60)),)
    bill = compute_bill(Usage(containers=used, idle=idle), load_book("modal"))
    assert [(line.item, line.quantity, line.unit) for line in bill.lines] == [
        ("vCPUs of containers", Decimal(200), "vCPU-second"),
        ("Memory of containers", Decimal(800), "GiB-second"),
        ("GPU T4", Decimal(160), "second"),
    ]
    mixed = compute_bill(Usage([record()], {"object.put": 1}, containers=used), load_book("modal"))
    assert [line for line in mixed.lines if is_of_container(line)] == [
        replace(line, quantity=quantity, amount=quantity * line.price)
        for line, (_, quantity) in zip(bill.lines, (*used[1:], used[0]), strict=True)
    ]
    assert len(mixed.lines) > len(bill.lines)
    assert bill.total == Decimal("0.000164") * 160 + Decimal("0.0000131") * 200 + Decimal("0.00000222") * 800
    # AWS has no such GPU.
    left_out = compute_bill(Usage(containers=used), load_book("aws-us-east-1")).not_billed
    assert [each.item for each in left_out] == ["vCPUs of containers", "Memory of containers", "GPU T4"]


@pytest.fixture
def locale_without_unicode() -> Iterator[None]:
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    yield
    locale.setlocale(locale.LC_CTYPE, before)


@pytest.mark.usefixtures("locale_without_unicode")
def test_a_book_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace('"mine"', '"Büchlein"'), encoding="utf-8")
    assert load_book(path).name == "Büchlein"


def test_a_host_is_billed_in_whole_seconds_or_by_periods_but_not_both(tmp_path: Path) -> None:
    path = tmp_path / "both.toml"
    begun = 'begun_s = { value = "3600", source = "x", status = "assumed" }'
    host = f'prices."host.own" = {{ price = "1", unit = "second", source = "x", status = "assumed", {begun} }}\n'
    path.write_text(f'base = "aws-us-east-1"\n{host}')
    load_book(path)
    path.write_text(f'base = "aws-us-east-1"\n{host.replace("begun_s", "minimum = 60, begun_s")}')
    with pytest.raises(RequestError, match=r"host\.own cannot have both a minimum and begun_s"):
        load_book(path)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('price = "0.20"', "price = 0.20", "prices.lambda.requests.price: a price is a decimal in quotes"),
        ('price = "0.20"', 'price = "-0.20"', "prices.lambda.requests.price"),
        ('price = "0.20"', 'price = "NaN"', "prices.lambda.requests.price"),
        ('price = "0.20"', 'price = "2E-1"', "prices.lambda.requests.price"),
        ('price = "0.20"', "", "prices.lambda.requests.price: Field required"),
        ('source = "a contract"\n', "", "prices.lambda.requests.source: Field required"),
        ('unit = "request"', 'unit = "GB-second"', "lambda.requests is metered per request"),
        ('unit = "request"', 'unit = "request"\nminimum = 1', "lambda.requests cannot have a minimum"),
        ("lambda.requests", "lambda.request", "lambda.request is not something this program meters"),
        ("per = 1000000", "per = 0", "prices.lambda.requests.per"),
        ("per = 1000000", "per = true", "prices.lambda.requests.per"),
        ("per = 1000000", "pre = 1000000", "prices.lambda.requests.pre"),
        ("tiers = [", 'tiers = [{above=10, price="1", source="x", status="assumed"},', "tiers must rise strictly"),
        ('"documented"', '"guessed"', "prices.lambda.requests.status"),
        ("gb_mb = 1024", "gb_mb = 1023", "gb_mb"),
        ("date = 2026-01-31", 'date = "yesterday"', "date"),
        ('currency = "EUR"', 'currency = "euro"', "currency"),
        ('name = "mine"', "name =", "is not TOML"),
    ],
)
def test_a_bad_book_is_refused_by_its_entry(tmp_path: Path, old: str, new: str, named: str) -> None:
    path = tmp_path / "bad.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(RequestError) as refusal:
        load_book(path)
    assert named in str(refusal.value)
    assert str(refusal.value).startswith(f"The price book {path} is ")
    assert "\n" not in str(refusal.value)
    assert refusal.value.hint == ("correct the file." if named == "is not TOML" else "correct that entry.")


def test_a_missing_book_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    for missing in ("aws-mars-1", str(tmp_path / "none.toml"), tmp_path):
        with pytest.raises(RequestError, match=f"^There is no price book {re.escape(repr(str(missing)))}: ") as refusal:
            load_book(missing)
        assert refusal.value.hint.startswith(f"use one of {', '.join(book_names())}, or")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="is not TOML"):
        load_book(binary)

"""Cards of what a run's document says in numbers."""

from collections import defaultdict
from decimal import Decimal

from slslab.metrics import PHASES, Records, Rows
from slslab.reports.html import charts, formats, scales
from slslab.reports.html.parts import Card, Cell, Document, Key, Table

# Bars of memory; beyond it, the greatest of each function alone.
MEMORY_BARS = 24


def phases_card(document: Document) -> Card | None:
    """Seconds of each phase per worker."""
    per_worker = document.get("per_worker")
    if not per_worker:
        return None
    # On a busy host `other` may be some ms below zero, which no bar can show; the table does.
    rows = [(_rank(one), phase, max(0.0, one["phases"][phase])) for one in per_worker for phase in PHASES]
    clock = "wall time, s" if document.get("instances") else "Lambda time, s"
    chart = charts.stacked_bars("phases", f"Bars: {clock} of each phase, per worker", rows, scales.PHASE_KEYS, clock)
    table = Table(
        ("worker", *(f"{phase} s" for phase in PHASES), "billed s", "invocations", "peak MB"),
        [
            (
                _rank(one),
                *(f"{one['phases'][phase]:,.3f}" for phase in PHASES),
                f"{one['billed_seconds']:,.3f}",
                f"{one['invocations']:,}",
                f"{one['peak_memory_mb']:,}",
            )
            for one in per_worker
        ],
        folded=True,
    )
    return Card("card-phases", "Phases per worker", (chart,), (table,))


def modelled_card(document: Document) -> Card | None:
    """What was measured here beside what the replayed trace takes on Lambda, per worker."""
    found = document.get("modelled") or {}
    if found.get("status") != "modelled":
        return None
    theirs = {one["worker"]: one for one in found["per_worker"]}
    rows: list[tuple[str, str, float]] = []
    table = []
    for one in document["per_worker"]:
        other = theirs.get(one["worker"])
        rows.append((_rank(one), "measured", one["billed_seconds"]))
        lasted = sum(one["phases"].values()) - one["phases"]["init"]
        cells = [_rank(one), f"{lasted:,.3f}", "–", f"{one['billed_seconds']:,.3f}", "–"]
        if other:
            rows.append((_rank(one), "modelled", other["billed_seconds"]))
            cells[2], cells[4] = f"{other['seconds']:,.3f}", f"{other['billed_seconds']:,.3f}"
        table.append(cells)
    keys = scales.basis_keys("measured", "modelled")
    chart = charts.grouped_bars(
        "modelled", "Bars: billed seconds per worker, measured and modelled", rows, keys, "billed time, s"
    )
    spent = document["seconds"]
    total = (
        "first to last", formats.significant(spent.get("span")), formats.significant(found["seconds"]),
        f"{document['billed_seconds']:,.3f}", f"{found['billed_seconds']:,.3f}",
    )  # fmt: skip
    profile = found["profile"]
    return Card(
        "card-modelled",
        "Measured here, modelled on Lambda",
        (chart,),
        (
            Table(
                ("worker", "measured s", "modelled s", "measured billed s", "modelled billed s"),
                table,
                total=total,
                folded=True,
            ),
        ),
        notes=(
            f"Modelled on the profile {profile['name']} of {profile['date']}. {found['critical_path']} "
            f"Of the billed time {found['waiting_share']:.0%} is waiting (modelled).",
        ),
    )


def bill_card(document: Document) -> Card | None:
    """The bill line by line, measured and modelled."""
    cost = document.get("cost")
    if not cost:
        return None
    modelled = (document.get("modelled") or {}).get("cost")
    unit = cost["currency"]
    lines = [line for line in cost["lines"] if Decimal(line["amount"])]
    theirs: dict[str, Decimal] = defaultdict(Decimal)
    for line in modelled["lines"] if modelled else ():
        theirs[line["item"]] += Decimal(line["amount"])
    rows = [(scales.short_line(line["item"]), "measured", float(line["amount"])) for line in lines]
    rows += [(scales.short_line(item), "modelled", float(amount)) for item, amount in theirs.items() if amount]
    keys = scales.basis_keys("measured", "modelled") if modelled else scales.basis_keys("measured")
    figures = (
        charts.grouped_bars(
            "bill", f"Bars: {unit} of each line of the bill", rows, keys, f"amount, {unit}", axis_format="~g"
        ),
    )
    table: list[list[str | Cell]] = [
        [
            Cell(
                line["item"],
                f"{_quantity(line['quantity'])} {line['unit']} × {_price(line['price'])}, {line['status']}",
            ),
            _amount(line["amount"]),
        ]
        for line in cost["lines"]
    ]
    table += [
        [Cell(one["item"], f"{_quantity(one['quantity'])} {one['unit']}, no price in {cost['book']['name']}"), "–"]
        for one in cost["not_billed"]
    ]
    total: list[str | Cell] = ["total", _amount(cost["total"])]
    columns = ["line", f"measured, {unit}"]
    if modelled:
        columns.append(f"modelled, {unit}")
        names = [*(line["item"] for line in cost["lines"]), *(one["item"] for one in cost["not_billed"])]
        for row, name in zip(table, names, strict=True):
            row.append(_amount(str(theirs[name])))
        table += [[name, "–", _amount(str(amount))] for name, amount in theirs.items() if name not in names]
        total.append(_amount(modelled["total"]))
    book, standing = cost["book"], dict.fromkeys(line["status"] for line in cost["lines"])
    return Card(
        "card-bill",
        "Cost by line",
        figures if rows else (),
        (Table(tuple(columns), table, tuple(total)),),
        notes=(f"Prices of {book['name']}, {book['date']}: {', '.join(standing)} ones.",),
    )


def learning_card(document: Document) -> Card | None:
    """Training loss and test accuracy per epoch."""
    loss, accuracy = document.get("loss") or [], document.get("accuracy") or []
    found = []
    if loss:
        rows = [("training loss", number, value) for number, value in enumerate(loss, 1)]
        key = scales.series_keys(["training loss"])
        found.append(charts.lines("loss", "Line: training loss per epoch", rows, key, ("epoch", "training loss, nats")))
    if accuracy:
        rows = [("test accuracy", number, value) for number, value in enumerate(accuracy, 1)]
        key = (Key("test accuracy", "3"),)
        titles = ("epoch", "test accuracy, %")
        found.append(charts.lines("accuracy", "Line: test accuracy per epoch", rows, key, titles, percent=True))
    if not found:
        return None
    table = Table(
        ("epoch", "training loss", "test accuracy"),
        [
            (
                str(number + 1),
                f"{loss[number]:.4f}" if number < len(loss) else "–",
                formats.share(accuracy[number]) if number < len(accuracy) else "–",
            )
            for number in range(max(len(loss), len(accuracy)))
        ],
        folded=True,
    )
    return Card("card-learning", "Loss and accuracy", tuple(found), (table,))


def memory_card(document: Document, events: Rows | None, invocations: Records) -> Card | None:
    """The greatest memory of each function and worker against its limit; of instances, what they had."""
    launched = document.get("instances") or ()
    owner = {event["invocation"]: event["worker"] for event in events or () if event["worker"] >= 0}
    peaks: dict[tuple[str, int], tuple[int, int | None]] = {}
    for record in invocations:
        name = short_name(record["function"], str(document["run"]))
        place = name, owner.get(record["request_id"], -1)
        peak = max(record["max_memory_mb"], peaks.get(place, (0, 0))[0])
        peaks[place] = peak, record["memory_mb"]
    for one in launched:
        peaks[one["type"], one["worker"]] = one["peak_memory_mb"], None
    if not peaks:
        return None
    of = "and worker"
    if len(peaks) > MEMORY_BARS:
        greatest: dict[tuple[str, int], tuple[int, int | None]] = {}
        for (name, _), both in peaks.items():
            greatest[name, -1] = max(both, greatest.get((name, -1), both), key=lambda pair: pair[0])
        peaks, of = greatest, "alone: the greatest of all its workers"
    rows = [(_place(name, worker), peak, limit) for (name, worker), (peak, limit) in sorted(peaks.items())]
    caption = f"Max Memory Used by function {of}."
    if launched:
        caption = "Resident memory of each instance; an instance type's memory is not enforced here."
    label = "Bars: peak memory in MB, with a mark at the memory size"
    chart = charts.bars_to_limit("memory", label, rows, "peak memory, MB", "memory size, MB", caption)
    return Card("card-memory", "Memory against the limit", (chart,))


def invocations_card(document: Document) -> Card | None:
    """The REPORT lines in short."""
    found = document.get("reports")
    if not found or not found["endings"]:
        return None
    figures = (
        ("Duration, ms", "duration_ms"), ("Init Duration, ms", "init_ms"), ("Billed Duration, ms", "billed_ms"),
        ("Max Memory Used, MB", "max_memory_mb"),
    )  # fmt: skip
    rows = [
        (label, *(f"{found[name][end]:,.2f}" for end in ("min", "median", "max")))
        for label, name in figures
        if found[name] is not None
    ]
    endings = ", ".join(f"{number:,} {ending}" for ending, number in found["endings"].items())
    return Card(
        "card-invocations", "Invocations", (), (Table(("REPORT", "least", "median", "greatest"), rows),),
        notes=(f"Endings: {endings}.",),
    )  # fmt: skip


def short_name(function: str, run: str) -> str:
    """A function's name without its run's id."""
    return function.removeprefix(f"slslab-{run}").strip("-") or "worker"


def _place(name: str, worker: int) -> str:
    if worker < 0:
        return name
    return f"worker {worker}" if name == "worker" else f"{name} {worker}"


def _rank(worker: Document) -> str:
    return "unknown" if worker["worker"] < 0 else f"worker {worker['worker']}"


def _quantity(quantity: str) -> str:
    number = Decimal(quantity)
    return f"{number:,}" if number == number.to_integral_value() else f"{number:,.6f}"


def _amount(amount: str) -> Cell:
    return Cell(f"{Decimal(amount):.8f}", title=amount)


def _price(price: str) -> str:
    return format(Decimal(price).quantize(Decimal("1e-10")).normalize(), "f")

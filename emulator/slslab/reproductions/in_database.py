"""SPIRT's in-database operations made again (Section 4.2 of Barrak et al.): averaging and update, without and with.

Measured are both on the embedded tensor database of this host; modelled are the requests and bytes of each on a
platform's profile, with the CPU seconds that were measured. No figure is fitted to a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import Any

from slslab.papers import Paper, Row
from slslab.recomputing import Recomputed, percent, recompute
from slslab.replay.profiles import Profile
from slslab.reproductions.calls import Estimate
from slslab.reproductions.documents import Cell, ReproducedRow, head
from slslab.reproductions.in_database_arms import AVERAGE, NAIVE, OPERATIONS, UPDATE
from slslab.reproductions.in_database_measurements import IN_DATABASE, Lua, Measurements, Samples, middle
from slslab.reproductions.in_database_programs import Exchange, seconds

NAME, TABLE = "in-database", "optimizations"
ROWS = {
    AVERAGE: "SPIRT, averaging of gradients: in the database",
    UPDATE: "SPIRT, update of the model: in the database",
}
TITLES = {AVERAGE: "averaging of gradients", UPDATE: "update of the model"}
MODELS = {"mobilenet": "MobileNet", "resnet18": "ResNet-18"}
WITHOUT, WITH, RATIO, CHANGE = "without", "with", "ratio", "change"
COLUMNS = (
    (WITHOUT, "Without: fetched, computed in the function, put back", "s"),
    (WITH, "With: computed in the database", "s"),
    (RATIO, "Without ÷ with", "ratio"),
)
FLOAT_BYTES = 4


@dataclass(frozen=True)
class RatioCell(Cell):
    """A ratio that is not printed: compared with that of the printed figures."""

    @property
    def difference(self) -> float | None:
        """Ours over the recomputed one, less 1."""
        printed = next((one.value for one in self.recomputed if one.value), None)
        ours = self.modelled or self.measured
        return None if printed is None or ours is None else ours.value / float(printed) - 1


@dataclass(frozen=True)
class Played:
    """Modelled seconds of one operation: all without and with, and what the requests and bytes alone take."""

    without: float
    moving: float
    inside: float
    request: float

    @property
    def ratio(self) -> float:
        """Without ÷ with."""
        return self.without / self.inside


@dataclass(frozen=True)
class Compared:
    """One operation of one model: what was measured of a naive arm and in the database, played on a profile."""

    exchange: Exchange
    arm: str
    naive: Samples
    inside: Samples

    @property
    def numbers(self) -> int:
        """How many float32 the operation reads."""
        return self.exchange.gets * self.exchange.size // FLOAT_BYTES

    @property
    def arithmetic_s(self) -> float:
        """CPU seconds of the naive arm's arithmetic."""
        return median(self.naive.arithmetic_cpu_s)

    @property
    def script_s(self) -> float:
        """CPU seconds of the database's script."""
        return median(self.inside.script_cpu_s)

    def play(self, profile: Profile) -> Played:
        """Both ways on the profile, with the medians of what was measured."""
        naive = (median(self.naive.get_cpu_s), self.arithmetic_s, median(self.naive.put_cpu_s))
        programs = (
            self.exchange.naive(*naive),
            self.exchange.naive(0.0, 0.0, 0.0),
            self.exchange.in_database(self.script_s),
            self.exchange.in_database(0.0),
        )
        return Played(*(seconds(program, profile) for program in programs))

    def measured(self) -> dict[str, Estimate]:
        """Medians with the least and the greatest; a ratio is one of a turn."""
        ratios = [without / inside for without, inside in zip(self.naive.seconds, self.inside.seconds, strict=True)]
        return {WITHOUT: middle(self.naive.seconds), WITH: middle(self.inside.seconds), RATIO: middle(ratios)}


def build(paper: Paper, found: Measurements, models: Sequence[str], profile: Profile, fidelity: str) -> dict[str, Any]:
    """The document of these models' rows; those that were not measured are left out."""
    table = paper.table(TABLE)
    again = dict(zip((row.name for row in table.rows), recompute(paper, TABLE), strict=True))
    rows = []
    for operation in OPERATIONS:
        printed = paper.row(TABLE, ROWS[operation])
        for model in models:
            if model not in found.models:
                continue
            mine = MODELS[model] == table.inputs_of(printed).get("model")
            memory_mb = int(paper.row("table2", "SPIRT", MODELS[model]).published["memory_mb"])
            size = found.models[model].parameters * FLOAT_BYTES
            samples = found.models[model].operations[operation]
            for arm in NAIVE:
                exchange = Exchange(operation, size, found.gradients, memory_mb)
                compared = Compared(exchange, arm, samples[arm], samples[IN_DATABASE])
                published, cells = (printed, again[printed.name]) if mine else (None, ())
                rows.append(_row(compared, MODELS[model], published, cells, found.lua, profile))
    return {
        **head(NAME, fidelity, paper, table),
        "profile": {"name": profile.name, "date": profile.date.isoformat(), "description": profile.description},
        "measurements": found.model_dump(mode="json", by_alias=True, exclude={"models"}),
        "columns": [{"name": name, "title": title, "unit": unit} for name, title, unit in COLUMNS],
        "rows": [row.as_document() for row in rows],
        "rankings": [],
        "bills": [],
        "curves": [],
        "notes": _notes(found, models, profile),
    }


def _row(
    compared: Compared,
    model: str,
    printed: Row | None,
    again: Sequence[Recomputed],
    lua: Lua | None,
    profile: Profile,
) -> ReproducedRow:
    played, measured = compared.play(profile), compared.measured()
    modelled = {WITHOUT: played.without, WITH: played.inside, RATIO: played.ratio}
    published: Mapping[str, Decimal] = printed.published if printed else {}
    reasons = _reasons(compared, played, published, lua, profile)
    cells = {
        name: (RatioCell if name == RATIO else Cell)(
            published.get(name),
            tuple(one for one in again if one.column == name),
            measured[name],
            Estimate(modelled[name], None, None, len(compared.naive.seconds)),
            reason=reasons.get(name, ""),
        )
        for name, _, _ in COLUMNS
    }
    change = next((one.value for one in again if one.column == CHANGE), None)
    note = "" if change is None else f"the published seconds are {percent(change / 100)} with than without"
    more = {
        "parts": {
            "bytes_moved": compared.exchange.moved,
            "requests_and_bytes_s": played.moving,
            "arithmetic_cpu_s": compared.arithmetic_s,
            "script_cpu_s": compared.script_s,
            "script_request_s": played.request,
        },
        "memory_mb": compared.exchange.memory_mb,
    }
    return ReproducedRow(TITLES[compared.exchange.operation], model, compared.arm, cells, note, more)


def _reasons(
    compared: Compared, played: Played, published: Mapping[str, Decimal], lua: Lua | None, profile: Profile
) -> dict[str, str]:
    """Why seconds and ratio differ: what of the published seconds bytes, requests and arithmetic take, and what the
    rest would mean for each number."""
    if not published:
        return {}
    exchange = compared.exchange
    without, inside = float(published[WITHOUT]), float(published[WITH])
    rest = without - played.without
    get = profile.operation("tensor.get")
    speed = f" at {get.bandwidth_mb_s.value:.1f} MB/s" if get.bandwidth_mb_s else ""
    naive = (
        f"{exchange.gets} gets and a set of {exchange.size / 1e6:.1f} MB take {played.moving:.2f} s{speed}, the "
        f"arithmetic {compared.arithmetic_s:.2f} s of CPU; "
    )
    naive += (
        f"{rest:.1f} s of the published {without:g} s are in neither, {_each(rest, compared)} that is read."
        if rest > 0
        else f"that is {-rest:.1f} s more than the published {without:g} s."
    )
    stored = (
        f"No gradient moves: the request takes {1e3 * played.request:.2f} ms and the script {compared.script_s:.3f} s "
        f"of CPU, {_each(compared.script_s, compared)}; the published {inside:g} s are {_each(inside, compared)}."
    )
    if lua is not None and exchange.operation == AVERAGE:
        stored += (
            f" SPIRT's released Lua over JSON takes {1e9 * lua.number_s:.0f} ns a number here, in Redis {lua.redis}."
        )
    needed = played.without / (without / inside)
    ratio = (
        f"In both the database is the faster one; for the published ratio {needed:.2f} s with would belong to the "
        f"modelled {played.without:.2f} s without, {_each(needed, compared)}."
        if played.ratio > 1
        else "Modelled, the database is the slower one."
    )
    return {WITHOUT: naive, WITH: stored, RATIO: ratio}


def _each(spent: float, compared: Compared) -> str:
    return f"{1e9 * spent / compared.numbers:.3g} ns a number"


def _notes(found: Measurements, models: Sequence[str], profile: Profile) -> list[str]:
    turns = len(next(iter(found.models.values())).operations[AVERAGE][IN_DATABASE].seconds)
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items() if version != "none")
    notes = [
        f"Measured: {found.gradients} gradients in the embedded tensor database, a process of its own on one thread, "
        f"over loopback; medians of {turns} turns, in brackets the least and the greatest; a ratio is one of a turn. "
        f"{found.measured}, {found.host['cores']} processors, load {found.load['before'][0]:.1f} before and "
        f"{found.load['after'][0]:.1f} after, Python {found.host['python']}, {versions}.",
        "redis-py is the client of the released code, here with numpy's mean of a list; own client is the one of "
        "slslab's workers, which receives into arrays and adds as it goes.",
        f"Modelled: requests and bytes on {profile.name} of {profile.date}, with the medians of CPU seconds as they "
        "were measured, for functions of the memory size that Table 2 prints for SPIRT and for the database's host "
        "alike; no speed is fitted, and there is no wait for other workers.",
        "Nor does the paper say of how many gradients and workers the seconds are; the ratio is the same if both are "
        "of the same.",
        "As released, the average is a Lua script over gradients as JSON lists, whose mean leaves the database and is "
        "put back; the update's command is not in RedisAI, and its call is commented out.",
    ]
    if found.lua is not None:
        bytes_each = sum(found.lua.json_bytes) / len(found.lua.json_bytes) / found.lua.numbers
        notes.append(
            f"Lua over JSON was measured in Redis {found.lua.redis}, {len(found.lua.json_bytes)} gradients of "
            f"{found.lua.numbers:,} numbers, each {bytes_each:.1f} bytes of JSON instead of {FLOAT_BYTES}."
        )
    if missing := [MODELS[model] for model in models if model not in found.models]:
        notes.append(f"There are no measurements of {' and '.join(missing)}.")
    return notes

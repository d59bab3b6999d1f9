"""SPIRT's in-database operations reproduced (Section 4.2 of Barrak et al.): averaging and update, without and with.

The replay kernel plays small programs, a naive function and a script. Bytes and requests are the protocol's; CPU
seconds are given. The function's environment is warm and uses its worker's own database. Time before its first request
and after its last one isn't included."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median
from typing import Any

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile
from slslab_lab.papers.recomputation import Recomputed, recompute_row
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.studies import NAMES
from slslab_lab.studies.documents import Cell, Estimate, ReproducedRow, make_document, middle
from slslab_lab.studies.in_database.measurements import (
    AVERAGE,
    IN_DATABASE,
    NAIVE,
    OPERATIONS,
    UPDATE,
    Measurements,
    Released,
    Samples,
)
from slslab_lab.studies.study import Setup

WITHOUT, WITH, RATIO = "without", "with", "ratio"
RELEASED = "as released"
FLOAT_BYTES = 4
PHASES = {AVERAGE: "synchronise", UPDATE: "update"}
TABLE = "optimizations"
ROWS = {
    AVERAGE: "SPIRT, averaging of gradients: in the database",
    UPDATE: "SPIRT, update of the model: in the database",
}
TITLES = {AVERAGE: "averaging of gradients", UPDATE: "update of the model"}
COLUMNS = (
    (WITHOUT, "Without: fetched, computed in the function, put back", "s", 2),
    (WITH, "With: computed in the database", "s", 3),
    (RATIO, "Without ÷ with", "ratio", 2),
)


@dataclass(frozen=True)
class Exchange:
    """One operation on vectors of `parameters` numbers, float32, with `count` gradients, in a `memory_mb` function."""

    operation: str
    parameters: int
    count: int
    memory_mb: int

    @property
    def size(self) -> int:
        """Return bytes of a vector."""
        return FLOAT_BYTES * self.parameters

    @property
    def numbers(self) -> int:
        """Return how many numbers are read."""
        return self.gets * self.parameters

    @property
    def gets(self) -> int:
        """Return how many vectors a naive function fetches: all gradients, or parameters and a gradient."""
        return self.count if self.operation == AVERAGE else 2

    def naive(
        self, get_cpu_s: float, arithmetic_cpu_s: float, put_cpu_s: float, *, text_bytes: int | None = None
    ) -> Program:
        """Fetch, compute, put back; CPU seconds of the client in all gets, in the arithmetic, in the put.

        With `text_bytes` each gradient is fetched as that many bytes of JSON, and the mean is put back as a tensor.
        """
        phase, size = PHASES[self.operation], self.size if text_bytes is None else text_bytes
        share = round(get_cpu_s * NS / self.gets)
        gets = [Step("tensor.get", phase, cpu_ns=share, requests=1, bytes=size) for _ in range(self.gets)]
        compute = Step(self.operation, phase, cpu_ns=round(arithmetic_cpu_s * NS))
        put = Step("tensor.set", phase, cpu_ns=round(put_cpu_s * NS), requests=1, bytes=self.size)
        return self._program((*gets, compute, put))

    def in_database(self, script_cpu_s: float) -> Program:
        """Return a request for a script that takes `script_cpu_s` CPU seconds on the database's host."""
        script_ns = round(script_cpu_s * NS)
        return self._program((Step("tensor.script", PHASES[self.operation], requests=1, server_cpu_ns=script_ns),))

    def round_trip(self, script_s: float, mean_bytes: int, decode_cpu_s: float) -> Program:
        """Return a script that returns the mean as JSON, which is decoded and put back as a tensor."""
        phase, script_ns = PHASES[self.operation], round(script_s * NS)
        script = Step("tensor.script", phase, requests=1, bytes=mean_bytes, server_cpu_ns=script_ns)
        compute = Step(self.operation, phase, cpu_ns=round(decode_cpu_s * NS))
        return self._program((script, compute, Step("tensor.set", phase, requests=1, bytes=self.size)))

    def _program(self, steps: tuple[Step, ...]) -> Program:
        track = Track(self.operation, "invocation", 0, steps, self.memory_mb)
        return Program("spirt", 1, (track,), (), recorded=False)


def seconds(program: Program, profile: Profile) -> float:
    """Return modelled seconds from the first request to the end of the last step."""
    timeline = play(program, profile)
    return (max(timeline.end) - min(timeline.begin)) / NS


@dataclass(frozen=True)
class Comparison:
    """Both ways of one operation: seconds by column, and their parts in words (`said`).

    `measured` is empty if the model was too large to measure."""

    exchange: Exchange
    variant: str
    modelled: Mapping[str, float]
    said: Mapping[str, str]
    measured: Mapping[str, Estimate] = field(default_factory=dict)


def compare_tensors(exchange: Exchange, samples: Mapping[str, Samples], profile: Profile) -> Iterator[Comparison]:
    """Yield a comparison for each naive client with the database's script, all on float32 tensors."""
    inside = samples[IN_DATABASE]
    script_s = median(inside.script_cpu_s)
    with_s, request_s = (seconds(exchange.in_database(cpu_s), profile) for cpu_s in (script_s, 0.0))
    for arm in NAIVE:
        naive = samples[arm]
        cpu_s = tuple(median(part) for part in (naive.get_cpu_s, naive.arithmetic_cpu_s, naive.put_cpu_s))
        without_s, moving_s = (seconds(exchange.naive(*spent), profile) for spent in (cpu_s, (0.0, 0.0, 0.0)))
        ratios = [outer / inner for outer, inner in zip(naive.seconds, inside.seconds, strict=True)]
        yield Comparison(
            exchange,
            arm,
            {WITHOUT: without_s, WITH: with_s, RATIO: without_s / with_s},
            {
                WITHOUT: f"{exchange.gets} gets and a set of {exchange.size / 1e6:.1f} MB take {moving_s:.2f} s"
                f"{_speed(profile)} and the arithmetic {cpu_s[1]:.2f} s of CPU",
                WITH: f"the gradients don't move: the request takes {1e3 * request_s:.2f} ms and the script "
                f"{script_s:.3f} s of CPU, {each(script_s, exchange.numbers)}",
            },
            {WITHOUT: middle(naive.seconds), WITH: middle(inside.seconds), RATIO: middle(ratios)},
        )


def compare_released(exchange: Exchange, released: Released, profile: Profile) -> Comparison:
    """Compare a client that decodes all gradients with Redis's Lua, on JSON texts; both put the mean back as a tensor.

    Bytes and CPU seconds are scaled, by the number, from smaller gradients."""
    size = exchange.parameters
    text_bytes, mean_bytes = round(released.text_bytes * size), round(released.mean_bytes / released.numbers * size)
    decode_s, lua_s = (spent * exchange.numbers for spent in (released.decode_s, released.lua_s))
    mean_s = released.decode_s * size
    without_s, moving_s = (
        seconds(exchange.naive(0.0, cpu_s, 0.0, text_bytes=text_bytes), profile) for cpu_s in (decode_s, 0.0)
    )
    with_s = seconds(exchange.round_trip(lua_s, mean_bytes, mean_s), profile)
    trip_s = seconds(exchange.round_trip(0.0, mean_bytes, 0.0), profile)
    return Comparison(
        exchange,
        RELEASED,
        {WITHOUT: without_s, WITH: with_s, RATIO: without_s / with_s},
        {
            WITHOUT: f"{exchange.gets} gets of {text_bytes / 1e6:.0f} MB of JSON and a set take {moving_s:.1f} s"
            f"{_speed(profile)}, decoding and averaging {decode_s:.1f} s of CPU",
            WITH: f"Lua takes {lua_s:.0f} s of CPU, {each(lua_s, exchange.numbers)}, and the mean's way out and back "
            f"{trip_s:.1f} s",
        },
    )


def compare(
    measurements: Measurements, model: str, operation: str, memory_mb: int, profile: Profile
) -> Iterator[Comparison]:
    """Yield all comparisons of one operation and model; as released only if that was measured."""
    known = measurements.models[model]
    exchange = Exchange(operation, known.parameters, measurements.gradients, memory_mb)
    yield from compare_tensors(exchange, known.operations[operation], profile)
    if measurements.released is not None and operation == AVERAGE:
        yield compare_released(exchange, measurements.released, profile)


def each(spent_s: float, count: int) -> str:
    """Return the time per number, in words."""
    spent_ns = 1e9 * spent_s / count
    return f"{spent_ns:,.{0 if spent_ns >= 100 else 2}f} ns a number"


def _speed(profile: Profile) -> str:
    bandwidth = profile.operation("tensor.get").bandwidth_mb_s
    return f" at {bandwidth.value:.1f} MB/s" if bandwidth else ""


def build(setup: Setup, measurements: Measurements) -> dict[str, Any]:
    """Return the document of the chosen and measured models."""
    paper, profile, models = setup.paper, setup.profile, setup.options["models"]
    table = paper.table(TABLE)
    rows = []
    for operation in OPERATIONS:
        printed = paper.row(TABLE, ROWS[operation])
        for model in (model for model in models if model in measurements.models):
            memory_mb = int(paper.row("table2", "SPIRT", NAMES[model]).published["memory_mb"])
            mine = NAMES[model] == table.inputs_of(printed).get("model")
            published, cells = (printed.published, recompute_row(paper, TABLE, printed)) if mine else ({}, ())
            comparisons = compare(measurements, model, operation, memory_mb, profile)
            rows += [_row(one, NAMES[model], published, cells) for one in comparisons]
    return make_document(
        setup,
        table,
        COLUMNS,
        rows,
        _notes(measurements, models, profile),
        profile=profile,
        measurements=measurements.about("models"),
    )


def _row(
    compared: Comparison, model: str, published: Mapping[str, Decimal], again: Sequence[Recomputed]
) -> ReproducedRow:
    reasons = {}
    if published:
        # The parts of our seconds, and the time per number that the published ones imply.
        inside = float(published[WITH])
        implied = f"the published {inside:g} s are {each(inside, compared.exchange.numbers)}"
        reasons = {
            WITHOUT: f"without, {compared.said[WITHOUT]}.",
            WITH: f"with, {compared.said[WITH]}; {implied}.",
        }
    cells = {
        name: Cell(
            published.get(name),
            tuple(way for way in again if way.column == name),
            compared.measured.get(name),
            Estimate(compared.modelled[name]),
            reason=reasons.get(name, ""),
            follows=next((way.value for way in again if way.column == name == RATIO and way.value), None),
        )
        for name, *_ in COLUMNS
    }
    return ReproducedRow(TITLES[compared.exchange.operation], model, compared.variant, cells)


def _notes(measurements: Measurements, models: Sequence[str], profile: Profile) -> list[str]:
    turns = len(next(iter(measurements.models.values())).operations[AVERAGE][IN_DATABASE].seconds)
    notes = [
        f"Measured: {measurements.gradients} gradients in the embedded tensor database, a separate process with one "
        f"thread, over loopback. Figures are medians of {turns} turns with the least and the greatest; a ratio is one "
        f"turn's. {measurements.origin}, Python {measurements.host['python']}, load "
        f"{measurements.load['before'][0]:.1f} before and {measurements.load['after'][0]:.1f} after.",
        "redis-py is the client of the released code, here with numpy's mean of a list. The own client is the one of "
        "slslab's workers, which receives directly into arrays and adds each as it arrives. Both are compared with "
        "TorchScript in the database, all on float32 tensors, as the paper implies.",
        f"Modelled: requests and bytes on {profile.name} of {profile.date}, with the measured medians of CPU seconds, "
        "both for functions of the memory size that Table 2 prints for SPIRT and for the database's host. No speed "
        "is fitted, and workers don't wait for each other.",
        "The paper doesn't say for how many gradients and workers its seconds are. The ratio is valid if both have "
        "the same number.",
    ]
    if measurements.released is not None:
        released = measurements.released
        notes.append(
            f"{RELEASED[0].upper()}{RELEASED[1:]}: gradients are JSON texts, Lua adds them up in Redis, and the mean "
            "goes out as JSON and back as a tensor; without, a client decodes all texts. Bytes and CPU seconds per "
            f"number come from {len(released.json_bytes)} gradients of {released.numbers:,} numbers in Redis "
            f"{released.redis}: {released.text_bytes:.1f} bytes of JSON instead of {FLOAT_BYTES}, "
            f"{1e9 * released.lua_s:.0f} ns of Lua, {1e9 * released.decode_s:.0f} ns of Python. The released update "
            "calls a function that RedisAI doesn't have."
        )
    if missing := [NAMES[model] for model in models if model not in measurements.models]:
        notes.append(f"Measurements of {' and '.join(missing)} are missing.")
    return notes

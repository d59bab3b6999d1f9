"""One operation of SPIRT without the database and with it: measured, modelled, and what these consist of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median

from slslab.replay.profiles.profile import Profile
from slslab.reproductions.in_database.arms import NAIVE
from slslab.reproductions.in_database.measurements import IN_DATABASE, Measurements, Released, Samples, middle
from slslab.reproductions.in_database.programs import Exchange, seconds
from slslab.reproductions.minibatches import Estimate

WITHOUT, WITH, RATIO = "without", "with", "ratio"
RELEASED = "as released"


@dataclass(frozen=True)
class Comparison:
    """Both ways of one operation: seconds by column, `said` what they consist of, in words, and in numbers (`parts`).

    Measured is empty if the model was too large to measure."""

    exchange: Exchange
    variant: str
    modelled: Mapping[str, float]
    said: Mapping[str, str]
    parts: Mapping[str, float]
    measured: Mapping[str, Estimate] = field(default_factory=dict)

    def reasons(self, published: Mapping[str, Decimal]) -> dict[str, str]:
        """Return why these seconds and their ratio are not the published ones: what ours consist of, and what the
        published would need."""
        if not published:
            return {}
        without, inside = (float(published[name]) for name in (WITHOUT, WITH))
        ours = self.modelled[WITHOUT]
        if without > ours:
            rest = f"{without - ours:.1f} s of the published {without:g} s are not explained by these"
        else:
            rest = f"that is {ours - without:.1f} s more than the published {without:g} s"
        needed = ours * inside / without
        side = "too" if self.modelled[RATIO] > 1 else "not"
        return {
            WITHOUT: f"without, {self.said[WITHOUT]}; {rest}.",
            WITH: f"with, {self.said[WITH]}; the published {inside:g} s are {each(inside, self.exchange.numbers)}.",
            RATIO: f"as published the database is the faster one, modelled {side}; the published ratio would be that "
            f"of {needed:.2f} s with, {each(needed, self.exchange.numbers)}.",
        }


def compare_tensors(exchange: Exchange, samples: Mapping[str, Samples], profile: Profile) -> list[Comparison]:
    """Return a comparison for each naive client with the database's script, all on float32 tensors."""
    comparisons = []
    inside = samples[IN_DATABASE]
    script_s = median(inside.script_cpu_s)
    with_s, request_s = (seconds(exchange.in_database(cpu_s), profile) for cpu_s in (script_s, 0.0))
    for arm in NAIVE:
        naive = samples[arm]
        cpu_s = tuple(median(part) for part in (naive.get_cpu_s, naive.arithmetic_cpu_s, naive.put_cpu_s))
        without_s, moving_s = (seconds(exchange.naive(*spent), profile) for spent in (cpu_s, (0.0, 0.0, 0.0)))
        ratios = [outer / inner for outer, inner in zip(naive.seconds, inside.seconds, strict=True)]
        comparisons.append(
            Comparison(
                exchange,
                arm,
                {WITHOUT: without_s, WITH: with_s, RATIO: without_s / with_s},
                {
                    WITHOUT: f"{exchange.gets} gets and a set of {exchange.size / 1e6:.1f} MB take {moving_s:.2f} s"
                    f"{_speed(profile)} and the arithmetic {cpu_s[1]:.2f} s of CPU",
                    WITH: f"no gradient moves: the request takes {1e3 * request_s:.2f} ms and the script "
                    f"{script_s:.3f} s of CPU, {each(script_s, exchange.numbers)}",
                },
                {
                    "bytes_moved": float(exchange.moved),
                    "requests_and_bytes_s": moving_s,
                    "arithmetic_cpu_s": cpu_s[1],
                    "script_cpu_s": script_s,
                    "request_s": request_s,
                },
                {WITHOUT: middle(naive.seconds), WITH: middle(inside.seconds), RATIO: middle(ratios)},
            )
        )
    return comparisons


def compare_released(exchange: Exchange, released: Released, profile: Profile) -> Comparison:
    """Return the comparison of a client that decodes all gradients with Redis's Lua, on JSON texts; both put the mean
    back as a tensor.

    Bytes and CPU seconds are those of smaller gradients, by the number."""
    size = exchange.parameters
    text_bytes, mean_bytes = round(released.text_bytes * size), round(released.mean_text_bytes * size)
    decode_s, lua_s = (spent * exchange.numbers for spent in (released.decode_s, released.lua_s))
    mean_s = released.decode_s * size
    without_s, moving_s = (seconds(exchange.naive_json(text_bytes, cpu_s), profile) for cpu_s in (decode_s, 0.0))
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
        {
            "bytes_moved": float(exchange.gets * text_bytes + exchange.size),
            "requests_and_bytes_s": moving_s,
            "arithmetic_cpu_s": decode_s,
            "script_cpu_s": lua_s,
            "request_s": trip_s,
        },
    )


def compare(
    measurements: Measurements, model: str, operation: str, memory_mb: int, profile: Profile
) -> list[Comparison]:
    """Return all comparisons of one operation and model; as released only if that was measured."""
    known = measurements.models[model]
    exchange = Exchange(operation, known.parameters, measurements.gradients, memory_mb)
    comparisons = compare_tensors(exchange, known.operations[operation], profile)
    if measurements.released is not None and exchange.averages:
        comparisons.append(compare_released(exchange, measurements.released, profile))
    return comparisons


def each(spent_s: float, count: int) -> str:
    """Return the time per number, in words."""
    spent_ns = 1e9 * spent_s / count
    return f"{spent_ns:,.{0 if spent_ns >= 100 else 2}f} ns a number"


def _speed(profile: Profile) -> str:
    bandwidth = profile.operation("tensor.get").bandwidth_mb_s
    return f" at {bandwidth.value:.1f} MB/s" if bandwidth else ""

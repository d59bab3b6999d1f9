"""REPORT lines of CloudWatch's logs, and the profile with which a recorded run takes as long as they say."""

import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab.metering import billed_ms
from slslab.replay.kernel import play
from slslab.replay.profiles import Figure, Profile, with_speed
from slslab.replay.program import Program
from slslab.replay.timeline import Call

MARK = "REPORT RequestId:"
PLATFORM_REPORT = "platform.report"
FIELD = re.compile(r"([A-Z][A-Za-z ]*): ([0-9]+(?:\.[0-9]+)?) (?:ms|MB)\b")
REQUEST_ID = re.compile(r"REPORT RequestId: ([0-9A-Za-z-]+)")
STATUS = re.compile(r"\bStatus: (\w+)")
EXPORT = (
    "export one function's log: aws logs filter-log-events --log-group-name /aws/lambda/NAME --filter-pattern REPORT"
)
# Speeds that are looked for, and how exactly.
SLOWEST, FASTEST, PRECISION = 1 / 64, 64.0, 1e-4


@dataclass(frozen=True)
class Report:
    """What a REPORT line says: durations in ms, memory in MB; `init_ms` of a cold start."""

    request_id: str
    duration_ms: float
    billed_ms: float
    memory_mb: int
    max_memory_mb: int
    init_ms: float | None = None
    status: str = "success"

    @property
    def billed_as_here(self) -> bool:
        """Whether it is billed as the emulator bills: duration and init, rounded up once.

        Within the millisecond that the digits decide which the line does not print.
        """
        return abs(self.billed_ms - billed_ms(self.duration_ms, self.init_ms)) <= 1


@dataclass(frozen=True)
class Reports:
    """The REPORT lines of a log, and how many there were that could not be read."""

    lines: tuple[Report, ...]
    unread: int


def read_reports(path: Path) -> Reports:
    """The REPORT lines of a file; RequestError if it cannot be read, or has none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.", EXPORT) from error
    found = parse_reports(text)
    if not found.lines:
        which = f"none of its {found.unread} REPORT lines can be read" if found.unread else "it has no REPORT line"
        raise RequestError(f"{path} cannot be fitted: {which}.", EXPORT)
    return found


def parse_reports(text: str) -> Reports:
    """The REPORT lines in a text: plain, within JSON (documents, lines, messages), or as `platform.report` records."""
    found = list(_search(text))
    return Reports(tuple(line for line in found if line is not None), found.count(None))


def _search(text: str) -> Iterator[Report | None]:
    """Reports in their order; None for one that cannot be read."""
    decoder = json.JSONDecoder()
    position = 0
    while (brace := text.find("{", position)) >= 0:
        try:
            value, end = decoder.raw_decode(text, brace)
        except (ValueError, RecursionError):
            yield from _search_plain(text[position : brace + 1])
            position = brace + 1
            continue
        yield from _search_plain(text[position:brace])
        yield from _walk(value)
        position = end
    yield from _search_plain(text[position:])


def _walk(value: Any) -> Iterator[Report | None]:
    if isinstance(value, str):
        if MARK in value or PLATFORM_REPORT in value:
            yield from _search(value)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)
    elif isinstance(value, dict):
        if value.get("type") == PLATFORM_REPORT:
            yield _read_record(value.get("record"))
            return
        for inner in value.values():
            yield from _walk(inner)


def _search_plain(text: str) -> Iterator[Report | None]:
    if MARK in text:
        for line in text.splitlines():
            for part in line.split(MARK)[1:]:
                yield _read_line(f"{MARK}{part}")


def _read_line(line: str) -> Report | None:
    request_id, status = REQUEST_ID.match(line), STATUS.search(line)
    if request_id is None:
        return None
    fields = {name.strip(): float(value) for name, value in FIELD.findall(line, request_id.end())}
    try:
        return Report(
            request_id[1],
            fields["Duration"],
            fields["Billed Duration"],
            int(fields["Memory Size"]),
            int(fields["Max Memory Used"]),
            fields.get("Init Duration"),
            status[1] if status else "success",
        )
    except KeyError:
        return None


def _read_record(record: Any) -> Report | None:
    try:
        metrics = record["metrics"]
        init = metrics.get("initDurationMs")
        return Report(
            str(record["requestId"]),
            float(metrics["durationMs"]),
            float(metrics["billedDurationMs"]),
            int(metrics["memorySizeMB"]),
            int(metrics["maxMemoryUsedMB"]),
            None if init is None else float(init),
            str(record.get("status", "success")),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class Comparison:
    """Medians of what the lines say, and of the recorded run replayed at their memory size, before and after the fit.

    Milliseconds; None where there was no cold start. `lines` are those that were fitted to, of them `cold` with an
    init.
    """

    profile: Profile
    function: str
    memory_mb: int
    lines: int
    cold: int
    real: tuple[float, float | None]
    before: tuple[float, float | None]
    after: tuple[float, float | None]
    max_memory_mb: float
    billed_as_here: int


def fit_reports(
    reports: Sequence[Report], program: Program, function: str | None, base: Profile, source: str, on: date
) -> Comparison:
    """Fit the speed of the processors, and what init waits for, so that the program takes as long as the lines say.

    Lines of failed invocations are left out. A median's speed is the median of speeds, since more speed never takes
    longer. RequestError if the lines are of several memory sizes, if it is not clear which function they are of, or if
    no speed fits.
    """
    done = [line for line in reports if line.status == "success"]
    if not done:
        raise RequestError("All REPORT lines are of failed invocations.", "take the log of a run that succeeded.")
    sizes = sorted({line.memory_mb for line in done})
    if len(sizes) > 1:
        raise RequestError(
            f"The REPORT lines are of several memory sizes: {', '.join(map(str, sizes))} MB.",
            "take the log of one function between two changes of its memory size.",
        )
    chosen = _choose(program, function)
    tried = _at_memory(program, sizes[0])
    colds = [line.init_ms for line in done if line.init_ms is not None]
    real = statistics.median(line.duration_ms for line in done), statistics.median(colds) if colds else None
    before = _medians(tried, chosen, base)
    speed = _find_speed(tried, chosen, base, real[0])
    profile = with_speed(base, Figure(value=speed, status="measured", source=f"{source}: median of {len(done)} lines"))
    after = _medians(tried, chosen, profile)
    if real[1] is not None and after[1] is not None:
        earlier = profile.functions.init_wait_ms
        wait = max(0.0, real[1] - after[1] + (earlier.value if earlier else 0.0))
        figure = Figure(value=round(wait, 2), status="measured", source=f"{source}: median of {len(colds)} cold starts")
        functions = profile.functions.model_copy(update={"init_wait_ms": figure})
        profile = profile.model_copy(update={"functions": functions})
        after = _medians(tried, chosen, profile)
    profile = profile.model_copy(
        update={
            "name": f"{base.name}-calibrated",
            "date": on,
            "description": f"{base.description}; processors and init of {source}",
        }
    )
    return Comparison(
        profile,
        chosen,
        sizes[0],
        len(done),
        len(colds),
        real,
        before,
        after,
        statistics.median(line.max_memory_mb for line in done),
        sum(line.billed_as_here for line in done),
    )


def _choose(program: Program, function: str | None) -> str:
    """The function that the lines are of: the one named, or the only one of the program."""
    known = sorted({track.name for track in program.tracks if track.kind == "invocation"})
    if function is None and len(known) == 1:
        return known[0]
    if function not in known:
        which = "has no function" if not known else f"has the functions {', '.join(known)}"
        raise RequestError(
            f"The run {which}, and the REPORT lines are of {'one of them' if function is None else repr(function)}.",
            "name the one whose log it is: --function NAME.",
        )
    return function


def _at_memory(program: Program, memory_mb: int) -> Program:
    tracks = (replace(t, memory_mb=memory_mb) if t.kind == "invocation" else t for t in program.tracks)
    return replace(program, tracks=tuple(tracks))


def _medians(program: Program, function: str, profile: Profile) -> tuple[float, float | None]:
    """Median duration of this function's invocations, and of its cold ones' init, ms."""
    calls: list[Call] = [
        call
        for track, call in zip(program.tracks, play(program, profile).calls, strict=True)
        if track.kind == "invocation" and track.name == function
    ]
    colds = [call.init_ns / 1e6 for call in calls if call.cold]
    duration = statistics.median((call.ended - call.began) / 1e6 for call in calls)
    return duration, statistics.median(colds) if colds else None


def _find_speed(program: Program, function: str, base: Profile, duration_ms: float) -> float:
    def duration(speed: float) -> float:
        figure = base.compute.speed.model_copy(update={"value": speed})
        return _medians(program, function, with_speed(base, figure))[0]

    for speed, short, what in ((FASTEST, False, "even without its computing"), (SLOWEST, True, "at most")):
        modelled = duration(speed)
        if (modelled < duration_ms) == short:
            raise RequestError(
                f"No speed of processors fits: replayed, {function} takes {what} {modelled:,.0f} ms, and the REPORT "
                f"lines say {duration_ms:,.0f} ms.",
                "take the log of the same plan as the recorded run's, or another base (--profile).",
            )
    low, high = SLOWEST, FASTEST
    while high / low > 1 + PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if duration(middle) < duration_ms else (middle, high)
    return float(f"{math.sqrt(low * high):.4g}")

"""Read REPORT lines from CloudWatch logs, and fit a profile on which a recorded run takes as long as they say."""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from slslab.aws.limits import billed_ms
from slslab.errors import RequestError, counted
from slslab.predict.invocation import Predictor, Request
from slslab.predict.profiles.profile import Figure, Profile, with_speed
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program
from slslab_lab.replay.speeds import FASTEST, SLOWEST, find_speed

STDIN = Path("-")
SEARCHED = "tried while searching for a speed"
# The duration of each invocation and the init of a cold start (None of another), in ms.
Times = Iterable[tuple[float, float | None]]
# Metered invocations of `slslab up`, each with its requests to S3.
Invocations = Sequence[tuple[Mapping[str, Any], Sequence[Request]]]
# Returns a recorded function's times with a memory size in MB on a profile.
Recorded = Callable[[int, Profile], Times]
# Returns the median duration, and the median init (None without a cold start), on a profile, in ms.
Medians = Callable[[Profile], tuple[float, float | None]]
MARK = "REPORT RequestId:"
PLATFORM_REPORT = "platform.report"
FIELD = re.compile(r"([A-Z][A-Za-z ]*): ([0-9]+(?:\.[0-9]+)?) (?:ms|MB)\b")
REQUEST_ID = re.compile(r"REPORT RequestId: ([0-9A-Za-z-]+)")
STATUS = re.compile(r"\bStatus: (\w+)")
EXPORT = (
    "export one function's log: aws logs filter-log-events --log-group-name /aws/lambda/NAME --filter-pattern REPORT"
)


def _whole(value: Any) -> int:
    return int(float(value))


def _metric(in_lines: str, in_records: str) -> AliasChoices:
    return AliasChoices(in_lines, AliasPath("metrics", in_records))


@dataclass(frozen=True, config=ConfigDict(populate_by_name=True, coerce_numbers_to_str=True))
class Report:
    """A REPORT line: durations in ms, memory in MB; `init_ms` of a cold start."""

    request_id: str = Field(validation_alias="requestId")
    duration_ms: float = Field(validation_alias=_metric("Duration", "durationMs"))
    billed_ms: float = Field(validation_alias=_metric("Billed Duration", "billedDurationMs"))
    memory_mb: Annotated[int, BeforeValidator(_whole)] = Field(validation_alias=_metric("Memory Size", "memorySizeMB"))
    max_memory_mb: Annotated[int, BeforeValidator(_whole)] = Field(
        validation_alias=_metric("Max Memory Used", "maxMemoryUsedMB")
    )
    init_ms: float | None = Field(None, validation_alias=_metric("Init Duration", "initDurationMs"))
    status: Annotated[str, BeforeValidator(str)] = "success"

    @property
    def billed_as_here(self) -> bool:
        """Whether it is billed as the emulator bills: duration and init, rounded up once.

        A difference of one millisecond is allowed, since the line prints rounded figures.
        """
        return abs(self.billed_ms - billed_ms(self.duration_ms, self.init_ms)) <= 1


REPORT = TypeAdapter(Report)


def read_reports(path: Path) -> list[Report | None]:
    """Read the REPORT lines of a file, or of standard input for `-`: None for each line that can't be read.

    RequestError without a readable line.
    """
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.", EXPORT) from error
    reports = list(parse_reports(text))
    if not any(reports):
        reason = f"none of its {len(reports)} REPORT lines can be read" if reports else "it has no REPORT line"
        raise RequestError(f"{path} cannot be fitted: {reason}.", EXPORT)
    return reports


def parse_reports(text: str) -> Iterator[Report | None]:
    """Yield the REPORT lines in a text: plain, in JSON (documents, lines, messages), or `platform.report` records.

    None stands for a line that can't be read.
    """
    decoder, position = json.JSONDecoder(), 0
    while (brace := text.find("{", position)) >= 0:
        value, end = None, brace + 1
        with suppress(ValueError, RecursionError):
            value, end = decoder.raw_decode(text, brace)
        yield from _search_plain(text[position:brace])
        yield from _walk(value)
        position = end
    yield from _search_plain(text[position:])


def _walk(value: Any) -> Iterator[Report | None]:
    if isinstance(value, str):
        if MARK in value or PLATFORM_REPORT in value:
            yield from parse_reports(value)
    elif isinstance(value, dict) and value.get("type") == PLATFORM_REPORT:
        yield _report(value.get("record"))
    elif isinstance(value, list | dict):
        for inner in value if isinstance(value, list) else value.values():
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
    fields = {name.strip(): value for name, value in FIELD.findall(line, request_id.end())}
    return _report({"requestId": request_id[1], **fields, **({"status": status[1]} if status else {})})


def _report(fields: Any) -> Report | None:
    with suppress(ValidationError, TypeError, OverflowError):
        return REPORT.validate_python(fields)
    return None


def replayed_times(program: Program, function: str, memory_mb: int, profile: Profile) -> Times:
    """Replay a run with this memory size; return the times of a function."""
    tracks = (replace(t, memory_mb=memory_mb) if t.kind == "invocation" else t for t in program.tracks)
    calls = play(replace(program, tracks=tuple(tracks)), profile).calls
    return [
        ((call.ended - call.began) / 1e6, call.init_ns / 1e6 if call.cold else None)
        for track, call in zip(program.tracks, calls, strict=True)
        if track.kind == "invocation" and track.name == function
    ]


def predicted_times(predictor: Predictor, invocations: Invocations, memory_mb: int, profile: Profile) -> Times:
    """Predict invocations with this memory size; return their times."""
    moved = replace(predictor, profile=profile)
    found = [moved.predict({**record, "memory_mb": memory_mb}, made) for record, made in invocations]
    return [(each.duration_ms.value, None if each.init_ms is None else each.init_ms.value) for each in found]


def fit_reports(
    reports: Sequence[Report | None], function: str, recorded: Recorded, base: Profile, source: str, on: date
) -> tuple[Profile, dict[str, Any]]:
    """Fit the processors' speed and the waiting time of init, so that the function takes as long as the lines say.

    `recorded` returns the function's times with a memory size on a profile. `reports` are as from `read_reports`.

    Return the profile and a document: medians of the lines, and of the recorded function at their memory size, before
    and after the fit, in ms (None without a cold start); `fitted` counts the lines used, `cold` those with an init.

    Ignore lines of failed invocations. The fit searches one speed by the median duration, since a faster processor
    never takes longer. RequestError if the lines have several memory sizes, or if no speed fits.
    """
    read = [line for line in reports if line is not None]
    done = [line for line in read if line.status == "success"]
    if not done:
        raise RequestError("All REPORT lines are from failed invocations.", "take the log of a run that succeeded.")
    sizes = sorted({line.memory_mb for line in done})
    if len(sizes) > 1:
        raise RequestError(
            f"The REPORT lines have several memory sizes: {', '.join(map(str, sizes))} MB.",
            "take the log of one function between two changes of its memory size.",
        )

    def medians(profile: Profile) -> tuple[float, float | None]:
        return _medians(recorded(sizes[0], profile))

    cold = sum(line.init_ms is not None for line in done)
    real, before = _medians((line.duration_ms, line.init_ms) for line in done), medians(base)
    speed = _find_speed(medians, function, base, real[0])
    profile = with_speed(
        base, Figure(value=speed, status="measured", source=f"{source}: median of {counted(len(done), 'line')}")
    )
    after = medians(profile)
    if real[1] is not None and after[1] is not None:
        # The lines' init replaces the base's init for both package types.
        none = Figure(value=0, status="measured", source=source)
        base_functions = profile.functions.model_copy(update={"init_wait_ms": none, "init_wait_image_ms": None})
        spent_ms = medians(profile.model_copy(update={"functions": base_functions}))[1] or 0.0
        figure = Figure(
            value=round(max(0.0, real[1] - spent_ms), 2),
            status="measured",
            source=f"{source}: median of {counted(cold, 'cold start')}",
        )
        profile = profile.model_copy(update={"functions": base_functions.model_copy(update={"init_wait_ms": figure})})
        after = medians(profile)
    profile = profile.model_copy(
        update={
            "name": f"{base.name}-calibrated",
            "date": on,
            "description": f"{base.description}; processors and init of {source}",
        }
    )
    return profile, {
        "function": function,
        "memory_mb": sizes[0],
        "lines": {
            "read": len(read),
            "unread": len(reports) - len(read),
            "failed": len(read) - len(done),
            "fitted": len(done),
            "cold": cold,
            "billed_as_here": sum(line.billed_as_here for line in done),
        },
        "duration_ms": {"real": real[0], "before": before[0], "after": after[0]},
        "init_ms": {"real": real[1], "before": before[1], "after": after[1]},
        "max_memory_mb": statistics.median(line.max_memory_mb for line in done),
    }


def choose_function(names: list[str], function: str | None) -> str:
    """Return the function that the lines belong to: the named or the only one. RequestError if that isn't clear."""
    if function is None and len(names) == 1:
        return names[0]
    if function not in names:
        functions = f"has the functions {', '.join(names)}" if names else "has no functions"
        reported = "one of them" if function is None else repr(function)
        raise RequestError(
            f"The run {functions}, and the REPORT lines belong to {reported}.",
            "name the function that wrote the log: --function NAME.",
        )
    return function


def _medians(times: Times) -> tuple[float, float | None]:
    durations, inits = zip(*times, strict=True)
    colds = [init_ms for init_ms in inits if init_ms is not None]
    return statistics.median(durations), statistics.median(colds) if colds else None


def _find_speed(medians: Medians, function: str, base: Profile, duration_ms: float) -> float:
    def duration(speed: float) -> float:
        return medians(with_speed(base, Figure(value=speed, status="measured", source=SEARCHED)))[0]

    speed = find_speed(lambda speed: duration(speed) - duration_ms)
    modelled = duration(speed)
    if (speed == FASTEST and modelled >= duration_ms) or (speed == SLOWEST and modelled < duration_ms):
        bound = "even without computing" if speed == FASTEST else "at most"
        raise RequestError(
            f"No speed of processors fits: replayed, {function} takes {bound} {modelled:,.0f} ms, and the REPORT "
            f"lines say {duration_ms:,.0f} ms.",
            "take the log of the same plan as the recorded run's, or another base (--profile).",
        )
    return float(f"{speed:.4g}")

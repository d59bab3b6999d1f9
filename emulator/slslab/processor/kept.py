"""Keep measurements of this host's processor per user, keyed by processor and interpreter."""

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from slslab.errors import HostError, writable
from slslab.installation import cache_directory
from slslab.predict.anchors import Form
from slslab.predict.processor import UNANCHORED, Processor, Timing, make_processor
from slslab.processor import workloads
from slslab.processor.measurement import Measurement, Progress, measure, read_versions, run_probe
from slslab.run.log import replacing
from slslab_workers.trace.kinds import Kind

NAME, SCHEMA = "processors.json", 1
# Fields of /proc/cpuinfo, on x86-64 and on arm64.
FIELDS = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "cache size",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip
FLAGS = ("flags", "Features")
OTHER_FOLDER = "set XDG_CACHE_HOME to another folder."


class Damaged(Exception):
    """The file of kept measurements can't be read; the message is a sentence."""


@cache
def read_cpu(path: Path = Path("/proc/cpuinfo")) -> Mapping[str, str]:
    """Return the first processor in /proc/cpuinfo, with a digest of its flags."""
    with suppress(OSError):
        block = path.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        values = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in block.split("\n"))}
        flags = " ".join(sorted(next((values[name] for name in FLAGS if name in values), "").split()))
        return {
            **{name: values[name] for name in FIELDS if name in values},
            "flags": hashlib.sha256(flags.encode()).hexdigest()[:16],
        }
    return {}


def describe() -> str:
    """Return the processor and this interpreter in words."""
    cpu, versions = read_cpu(), read_versions()
    name = cpu.get("model name") or platform.machine()
    if "cpu family" in cpu:
        name += f" (family {cpu['cpu family']}, model {cpu.get('model', '?')}, stepping {cpu.get('stepping', '?')})"
    packages = "".join(f", {package} {versions[package]}" for package in ("torch", "numpy") if versions[package])
    return f"{name}, Python {versions['python']}, {' '.join(versions['openssl'].split()[:2])}{packages}"


@cache
def make_key() -> str:
    """Return the key of a measurement: a digest of what CPU times depend on and of the workloads."""
    work = hashlib.sha256(Path(workloads.__file__).read_bytes()).hexdigest()[:16]
    parts = {**read_cpu(), **{f"python {name}": value for name, value in read_versions().items()}}
    return hashlib.sha256(json.dumps({**parts, "workloads": work}, sort_keys=True).encode()).hexdigest()[:32]


def load_processor() -> Processor:
    """Return the processor as measured on this host with this interpreter, or UNANCHORED; never measure.

    If the kept file is damaged, UNANCHORED's `missing` says so.
    """
    try:
        entry = _read().get(make_key())
        return UNANCHORED if entry is None else _make(_measurement(entry), str(entry["measured"]))
    except Damaged as error:
        return replace(UNANCHORED, missing=f"{error} To measure again, run: slslab calibrate --processor")


def load_measurement() -> Measurement | None:
    """Return the kept measurement for this interpreter, or None if it is missing or can't be read."""
    with suppress(Damaged):
        entry = _read().get(make_key())
        return None if entry is None else _measurement(entry)
    return None


def measure_processor(short: bool = False, progress: Progress = lambda *_: None) -> Processor:
    """Measure this host's processor and keep the result for `load_processor`.

    Short forms take at most 20 s and give a wider range; whole ones take at most 90 s. Short measurements don't replace
    kept whole ones. HostError if nothing could be measured or kept.
    """
    _make_folder()  # fail before spending a minute
    measurement = measure(short, progress)
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    entries: dict[str, Any] = {}
    with suppress(Damaged):  # a damaged file is overwritten
        entries = dict(_read())
    processor = _make(measurement, measured)
    key = make_key()
    if not (short and key in entries and entries[key].get("whole")):
        _write({**entries, key: _entry(measurement, measured, describe())})
    return processor


def probe() -> dict[Kind, float]:
    """Run about a second of each kind of work; return its CPU seconds now ÷ the kept ones, by kind.

    It is empty if nothing is kept. Above 1, this host is slower than when it was measured.
    """
    kept = load_measurement()
    if kept is None or not kept.probe:
        return {}
    return {kind: seconds / kept.probe[kind] for kind, seconds in run_probe().items() if kind in kept.probe}


def _make(measurement: Measurement, measured: str) -> Processor:
    versions = read_versions()
    return make_processor(
        measurement.timings,
        describe(),
        measured,
        versions["python"],
        versions["torch"],
        checks=measurement.short,
    )


def _entry(measurement: Measurement, measured: str, name: str) -> dict[str, Any]:
    forms = {"whole": measurement.whole, "short": measurement.short}
    return {
        "name": name,
        "measured": measured,
        "load": measurement.load,
        "probe": dict(measurement.probe),
        **{form: {name: list(timing.cpu_s) for name, timing in timings.items()} for form, timings in forms.items()},
    }


def _measurement(entry: Any) -> Measurement:
    def timings(form: Form) -> dict[str, Timing]:
        return {name: Timing(form, _positive(values)) for name, values in entry[form].items() if values}

    try:
        probe = dict(zip(entry["probe"], _positive(entry["probe"].values()), strict=True))
        return Measurement(timings("whole"), timings("short"), probe, float(entry["load"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"The measurements in {cache_directory() / NAME} are damaged.") from error


def _positive(values: Any) -> tuple[float, ...]:
    seconds = tuple(map(float, values))
    if not all(0 < value < 1e6 for value in seconds):
        raise ValueError
    return seconds


def _read() -> Mapping[str, Any]:
    path = cache_directory() / NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(f"The measurements in {path} can't be read.") from error
    if (
        not isinstance(document, dict)
        or document.get("schema") != SCHEMA
        or not isinstance(document.get("hosts"), dict)
    ):
        raise Damaged(f"The measurements in {path} are damaged.")
    hosts: Mapping[str, Any] = document["hosts"]
    return hosts


def _write(entries: Mapping[str, Any]) -> None:
    folder = _make_folder()
    with writable(folder, OTHER_FOLDER, HostError), replacing(folder / NAME, on_disk=False) as file:
        file.write(json.dumps({"schema": SCHEMA, "hosts": entries}, indent=1).encode())


def _make_folder() -> Path:
    folder = cache_directory()
    with writable(folder, OTHER_FOLDER, HostError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder

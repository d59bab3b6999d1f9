"""Keep measurements of this host's processor per user, keyed by processor and interpreter."""

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

# As in `slslab.run.bill`.
from typing_extensions import TypedDict

from slslab.errors import HostError, writable
from slslab.installation import cache_directory
from slslab.predict.processor import UNANCHORED, Processor, make_processor
from slslab.processor import workloads
from slslab.processor.measurement import Measurement, Progress, measure, read_versions, run_probe
from slslab.run.log import replacing
from slslab_workers.trace.kinds import Kind

NAME = "processors.json"
SCHEMA: Literal[1] = 1
# Fields of /proc/cpuinfo, on x86-64 and on arm64.
FIELDS = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "cache size",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip
FLAGS = ("flags", "Features")
OTHER_FOLDER = "set XDG_CACHE_HOME to another folder."


class _File(TypedDict):
    schema: Literal[1]
    hosts: dict[str, Any]


_FILE, _MEASUREMENT = TypeAdapter(_File), TypeAdapter(Measurement)


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
        measurement = _kept()
    except Damaged as error:
        return replace(UNANCHORED, missing=f"{error} To measure again, run: slslab calibrate --processor")
    return UNANCHORED if measurement is None else _make(measurement)


def load_measurement() -> Measurement | None:
    """Return the kept measurement for this interpreter, or None if it is missing or can't be read."""
    with suppress(Damaged):
        return _kept()
    return None


def measure_processor(short: bool = False, progress: Progress = lambda *_: None) -> Processor:
    """Measure this host's processor and keep the result for `load_processor`.

    Short forms take at most 20 s and give a wider range; whole ones take at most 90 s. Short measurements don't replace
    kept whole ones. HostError if nothing could be measured or kept.
    """
    _make_folder()  # fail before spending a minute
    measurement = measure(short, progress)
    entries: dict[str, Any] = {}
    with suppress(Damaged):  # a damaged file is overwritten
        entries = _read()
    key = make_key()
    if not (short and entries.get(key, {}).get("whole")):
        entries[key] = {"name": describe(), **_MEASUREMENT.dump_python(measurement, mode="json")}
        folder = _make_folder()
        with writable(folder, OTHER_FOLDER, HostError), replacing(folder / NAME, on_disk=False) as file:
            file.write(_FILE.dump_json({"schema": SCHEMA, "hosts": entries}, indent=1))
    return _make(measurement)


def probe() -> dict[Kind, float]:
    """Run about a second of each kind of work; return its CPU seconds now ÷ the kept ones, by kind.

    It is empty if nothing is kept. Above 1, this host is slower than when it was measured.
    """
    kept = load_measurement()
    if kept is None or not kept.probe:
        return {}
    return {kind: seconds / kept.probe[kind] for kind, seconds in run_probe().items() if kind in kept.probe}


def _make(measurement: Measurement) -> Processor:
    versions = read_versions()
    return make_processor(
        measurement.timings,
        describe(),
        measurement.measured,
        versions["python"],
        versions["torch"],
        checks=measurement.checks,
    )


def _kept() -> Measurement | None:
    entry = _read().get(make_key())
    try:
        return None if entry is None else _MEASUREMENT.validate_python(entry)
    except ValidationError as error:
        raise Damaged(f"The measurements in {cache_directory() / NAME} are damaged.") from error


def _read() -> dict[str, Any]:
    path = cache_directory() / NAME
    try:
        return _FILE.validate_json(path.read_bytes())["hosts"]
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        raise Damaged(f"The measurements in {path} can't be read.") from error


def _make_folder() -> Path:
    folder = cache_directory()
    with writable(folder, OTHER_FOLDER, HostError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder

"""What `slslab doctor` shows: what this host can enforce and measure, and what the gaps mean for a run."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version

import psutil

from slslab.aws.limits import MB, VCPU_MB, lambda_limits
from slslab.errors import HostError, counted
from slslab.host.cgroups import Hierarchy, detect
from slslab.host.namespaces import detect as namespaces
from slslab.host.procfs import KeptFiles, peak_resident_bytes, process_tree, reset_peak_resident, take_sample
from slslab.installation import installed, lacking
from slslab.lambda_.configuration import RUNTIMES
from slslab.lambda_.emulator import memory_budget_mb
from slslab.lambda_.packages import layer_size
from slslab.lambda_.runtimes import find_interpreter, obstacle
from slslab.report.page import WORDS, Cell, Table
from slslab.stack.channels import find_server
from slslab.stack.instances.fleet import cuda_devices
from slslab.stack.queues import find_rabbitmq

OK, PARTLY, MISSING = "ok", "partly", "missing"
MOODS = {OK: "good", PARTLY: "warn", MISSING: "bad"}


@dataclass(frozen=True)
class Finding:
    """One examined thing: its state (`ok`, `partly`, `missing`), what was found, and what to do about it."""

    subject: str
    state: str
    found: str
    hint: str = ""


def findings_table(examined: Sequence[Finding]) -> Table:
    """Return the table of `doctor`'s findings."""
    rows = [(each.subject, Cell(each.state, mood=MOODS[each.state]), each.found, each.hint) for each in examined]
    return Table(("", "", "found", "what it means"), rows, words=WORDS)


def examine() -> list[Finding]:
    """Examine this host; return the findings in the order they are printed."""
    hierarchy = detect()
    return [*_software(), *_machine(hierarchy), *_services(), _engine(), *_environments(hierarchy)]


def _finding(subject: str, fine: bool, found: str, hint: str, *, state: str = PARTLY, otherwise: str = "") -> Finding:
    return Finding(subject, OK, found) if fine else Finding(subject, state, otherwise or found, hint)


def _lacking(subject: str, module: str) -> Finding:
    error = lacking(module)
    return Finding(subject, MISSING, error.message.rstrip("."), error.hint)


def _software() -> Iterator[Finding]:
    own = sys.version.split()[0]
    yield Finding("Python", OK, own)
    found = [(runtime, find_interpreter(runtime), obstacle(runtime)) for runtime in RUNTIMES]
    versions = [runtime if of is None else of.version for runtime, of, why in found if not why]
    stood_for = [f"{runtime} ({why})" for runtime, _, why in found if why]
    yield _finding(
        "runtimes",
        not stood_for,
        f"functions run on Python {', '.join(versions)}",
        f"{own} replaces {', '.join(stood_for)}; only it sees this host's packages",
    )
    if installed("torch"):
        number = version("torch")
        build = "for CPUs" if number.endswith("+cpu") else "with CUDA: it takes about twice the memory of a CPU build"
        yield Finding("training", OK, f"torch {number}, built {build}")
    else:
        yield _lacking("training", "torch")
    devices = cuda_devices() if installed("torch") else ()
    hint = "instances run on the CPU instead, and their reports say so"
    yield _finding("GPUs", bool(devices), ", ".join(devices), hint, state=MISSING, otherwise="torch finds no GPU")
    subject = "replay, pages, Parquet"
    absent = [module for module in ("numpy", "scipy", "pyarrow", "altair", "jinja2") if not installed(module)]
    yield _lacking(subject, absent[0]) if absent else Finding(subject, OK, f"pyarrow {version('pyarrow')}")


def _machine(hierarchy: Hierarchy) -> Iterator[Finding]:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    yield _finding(
        "processors",
        load <= cores / 2,
        f"{counted(cores, 'core')}, load {load:.1f}: {cores * VCPU_MB:,} MB of functions compute without host delay",
        "other programs are running; the Lambda clock corrects durations, but runs will be marked oversubscribed",
    )
    memory, budget_mb = psutil.virtual_memory(), memory_budget_mb()
    yield _finding(
        "memory",
        budget_mb >= 4 * 1024,
        f"{memory.available // MB:,} of {memory.total // MB:,} MB available, {budget_mb:,} MB for functions",
        "four workers of 1,024 MB don't fit: lower --workers or --memory",
    )
    for controller, subject, otherwise in (
        ("memory", "memory limit", "a watchdog checks the resident set every 10 ms instead"),
        ("cpu", "CPU share (memory/1769)", "compute runs at the host's speed, and the run says so"),
        ("pids", "1,024 processes", "a function may start more processes than on Lambda"),
    ):
        yield _finding(
            subject,
            controller in hierarchy.parents,
            f"enforced by cgroup v{hierarchy.version}",
            f"{otherwise}; run as root, or under `systemd-run --user --scope -p Delegate=yes`",
            state=MISSING,
            otherwise=f"no writable {controller} control group",
        )
    pid = os.getpid()
    yield _finding(
        "Lambda clock",
        any(times.cpu_ns > 0 for times in take_sample(0, [pid], None).threads.values()),
        "schedstat reports each thread's run delay",
        "durations are wall time: keep the host idle during a run",
        state=MISSING,
        otherwise="the kernel has no schedstat",
    )
    block = bytearray(32 * MB)
    high = peak_resident_bytes([pid])
    del block
    with closing(KeptFiles()) as files:
        reset_peak_resident([pid], files.write)
    yield _finding(
        "peak memory per invocation",
        peak_resident_bytes([pid]) < high and bool(process_tree(pid)),
        "VmHWM, reset through clear_refs",
        "the peak of a warm environment covers all of its invocations",
        otherwise="VmHWM cannot be reset",
    )


def _services() -> Iterator[Finding]:
    free_gb = shutil.disk_usage(os.environ.get("TMPDIR", "/tmp")).free / 1e9
    hint = "point TMPDIR at a larger file system"
    yield _finding("S3 server", free_gb >= 5, f"{free_gb:.0f} GB free for objects", hint)
    subject = "Step Functions"
    yield Finding(subject, OK, f"moto {version('moto')}") if installed("moto") else _lacking(subject, "moto")
    rabbitmq = find_rabbitmq()
    yield _finding(
        "RabbitMQ",
        rabbitmq is not None,
        rabbitmq.version if rabbitmq else "",
        "queues are lists in the tensor database instead; for RabbitMQ, install Debian's package rabbitmq-server",
        state=MISSING,
        otherwise="not installed",
    )
    for name, program, otherwise in (
        ("Memcached", "memcached", "--channel memcached needs it: apt-get install memcached"),
        ("Redis", "redis-server", "--channel redis uses the tensor database instead; apt-get install redis-server"),
    ):
        yield _finding(
            name, find_server(program) is not None, "installed", otherwise, state=MISSING, otherwise="not installed"
        )


def _engine() -> Finding:
    subject = "containers"
    if not installed("docker"):
        return _lacking(subject, "docker")
    from slslab.host.containers import WORKER_IMAGE
    from slslab.host.docker_engine import Engine

    try:
        engine = Engine()
    except HostError as error:
        return Finding(subject, MISSING, error.message.rstrip("."), error.hint)
    with closing(engine):
        image = os.environ.get("SLSLAB_WORKER_IMAGE", WORKER_IMAGE)
        if engine.image(image) is None:
            found = f"Docker {engine.version} without the image {image}"
            return Finding(subject, PARTLY, found, "build it with `make images`")
        return Finding(subject, OK, f"Docker {engine.version} with {image}")


def _environments(hierarchy: Hierarchy) -> Iterator[Finding]:
    yield _finding(
        "freezing between invocations",
        hierarchy.version == 2 or "freezer" in hierarchy.parents,
        f"by cgroup v{hierarchy.version}",
        "a function's threads keep running between invocations, unlike on Lambda",
        state=MISSING,
        otherwise="no freezer control group",
    )
    isolation = namespaces()
    if isolation.mode:
        hint = (
            "functions can't reach each other, your files and your keys, but can use the host's network and kernel: "
            "run only code that you trust (docs/design.md)"
        )
        state = PARTLY if isolation.missing else OK
        yield Finding("isolation", state, isolation.description, "; ".join([*isolation.missing, hint]))
    else:
        hint = "functions can read your files and keys: run as root, or allow user namespaces"
        yield Finding("isolation", MISSING, isolation.description, hint)
    if (layer := layer_size()) is None:
        yield Finding("layer", MISSING, "torch is not installed")
        return
    name, size = layer
    limit = lambda_limits().unzipped_bytes
    yield _finding(
        "layer",
        size <= limit,
        f"{name}, {size / 1e6:,.0f} MB, is shared by all functions as a layer",
        f"above Lambda's {limit / 2**20:.0f} MB: on AWS, use a container image",
    )

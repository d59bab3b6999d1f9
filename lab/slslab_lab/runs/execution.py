"""Executes a plan: stack and emulator up, the architecture's driver, then the run's document from its trace.

Data flows one way: plan → invocations and events → trace → bill and metrics → document.
"""

import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from slslab.errors import HostError, RequestError
from slslab.host.procfs import read_times
from slslab.lambda_.emulator import PACKAGES_OF_IMAGES
from slslab.predict.profiles.profile import load_platform
from slslab.run.bill import Book, load_book
from slslab.run.directory import RunDirectory, root
from slslab.run.document import Alone, NotAlone, RunDocument
from slslab.run.log import TraceWriter
from slslab.run.run import Run
from slslab.stack.instances.fleet import check_fleet
from slslab_lab.pages.run_page import PAGE, leave_page
from slslab_lab.replay.gpus import check_book
from slslab_lab.runs import alone
from slslab_lab.runs.admission import Say, admit, admit_concurrency, admit_hosts, print_warning
from slslab_lab.runs.embedded import EmbeddedSystem
from slslab_lab.runs.on_lambda import play
from slslab_lab.runs.planning import architectures, make_plan, settle
from slslab_lab.runs.platforms import check_limits
from slslab_lab.runs.processor import ProcessorWatch
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.system import System
from slslab_workers.architecture import Architecture, Fleet, Outcome, Progress, Requirements, RunFailed
from slslab_workers.plan import Plan, PlanError
from slslab_workers.trace.operations import SERVERS
from slslab_workers.training import datasets


@dataclass(frozen=True)
class Order:
    """A run to make: the directory here that it belongs to, its architecture, and the values of its plan."""

    path: Path
    architecture: str
    values: Mapping[str, Any]


def run_plan(
    name: str,
    values: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    out: Path | None,
    book: str | None,
    progress: Progress,
    named: Mapping[str, str] | None = None,
    reuse: bool = False,
    strict: bool = False,
    say: Say = print_warning,
) -> RunDocument:
    """Run an architecture, as `slslab run ARCH` does, and return the run's document, of status `failed` if it failed.

    `named` has the name and processor of a host other than the command's; with `reuse`, a solo profile of the same work
    is used again; with `strict`, functions don't see this host's packages. Without a `book` the bill has AWS's
    prices, or the platform's. `say` receives a warning before the run. RequestError, PlanError or HostError if the run
    can't begin.
    """
    plan = make_plan(architectures()[name], {**values, "prices": book}, options)
    return run(plan, out=out, progress=progress, named=named, reuse=reuse, strict=strict, say=say)


def run(
    plan: Plan,
    *,
    out: Path | None,
    progress: Progress,
    named: Mapping[str, str] | None = None,
    reuse: bool = False,
    strict: bool = False,
    say: Say = print_warning,
) -> RunDocument:
    """Run a plan; see `run_plan`."""
    architecture, prices = architectures()[plan.architecture], load_book(plan.prices)
    check_limits(plan, architecture)
    check_hosts(architecture.requirements(plan), prices)
    if plan.platform is not None and (containers := load_platform(plan.platform).containers):
        check_book(containers, prices)
    admit_concurrency(plan, architecture)
    admit_hosts(plan, architecture, say)
    datasets.find(plan.dataset).check()
    system = find_system(plan, architecture, strict=strict)
    admit(plan, architecture, system.budgets_mb)
    directory = RunDirectory.create(out if out is not None else root() / plan.run)
    plan = settle(plan, system.automatic)
    return execute(plan, architecture, directory, progress, prices, system, named, reuse)


def check_hosts(requirements: Requirements, book: Book) -> None:
    """Raise RequestError for an instance type that the book cannot bill.

    A book may lack the hosts that are assumed by default; its bill lists them as not billed.
    """
    if requirements.instances is not None:
        check_fleet(requirements.instances, book)
    for instance_type in set(requirements.hosts) - {server.instance_type for server in SERVERS.values()}:
        check_fleet(Fleet(instance_type), book)


def find_system(plan: Plan, architecture: Architecture, *, strict: bool = False) -> System:
    """Return what the plan runs on; HostError or RequestError if it cannot."""
    requirements = architecture.requirements(plan)
    if strict and requirements.instances is not None:
        raise RequestError("Instances have the packages of this machine.", "leave out --strict-packages.")
    if strict and (plan.stack == "compose" or plan.environment == "docker"):
        raise RequestError(PACKAGES_OF_IMAGES, "leave out --strict-packages.")
    if plan.stack == "embedded":
        return EmbeddedSystem(plan, requirements, strict=strict)
    from slslab_lab.runs.compose import ComposeSystem

    return ComposeSystem(plan, requirements)


def execute(
    plan: Plan,
    architecture: Architecture,
    directory: RunDirectory,
    progress: Progress,
    book: Book,
    system: System,
    named: Mapping[str, str] | None = None,
    reuse: bool = False,
) -> RunDocument:
    """Run the plan to its end and return the run's document (status `done`, `failed` or `interrupted`)."""
    lock = directory.lock()
    began = False
    try:
        directory.write_plan(plan.to_document())
        before: Alone | NotAlone | None = None
        watch = ProcessorWatch(plan, progress) if plan.record != "alone" else None
        outcome: Outcome | None = None
        failure: RunFailed | None = None
        starting = time.monotonic()
        # The last records come when the system ends.
        with ExitStack() as later, system:
            start_s = time.monotonic() - starting
            admit(plan, architecture, system.budgets_mb)
            if watch is None:
                before, processor = alone.find(plan, architecture, system, directory.path, progress, reuse=reuse)
            beginning, times = time.monotonic(), read_times()
            recorder = Recorder(later.enter_context(TraceWriter(directory.trace_log, plan.run)), plan, progress)
            with system.running(recorder, directory.logs) as running:
                began, host = True, {**running.host, **(named or {})}
                try:
                    with running.watched():
                        outcome = architecture.drive(plan, running.cloud, progress)
                except RunFailed as error:
                    failure = error
                except KeyboardInterrupt:
                    failure = RunFailed("Interrupted", "The run was interrupted; its trace up to then is kept.")
                host |= running.finish()
                if plan.environment != "ray":  # its nodes are other hosts
                    host["stolen_share"] = round(read_times().stolen_share(times), 3)
        # Without the solo profile.
        seconds = start_s + time.monotonic() - beginning
        if watch is not None:
            processor = watch.end()
        ended = Run(directory, plan=plan, document=None)
        made = ended.describe(host, outcome, failure, seconds, book, before, processor)
        ended = ended.replace(document=made)
        made["lambda"] = play(ended, book)
        page = leave_page(directory.path / PAGE, ended)
        return cast(RunDocument, directory.finish({**made, "report": page}))
    except (PlanError, HostError, KeyboardInterrupt) as error:
        # A plan that turned out wrong, or a system that did not start, leaves no run behind.
        if isinstance(error, PlanError) or not began:
            shutil.rmtree(directory.path, ignore_errors=True)
        raise
    finally:
        directory.unlock(lock)

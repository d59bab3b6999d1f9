"""Launch instances in the emulator of a compose stack, from the driver's side."""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from slslab.compose.client import RemoteRecording
from slslab.errors import HostError
from slslab_workers.architecture import Fleet
from slslab_workers.driver.deployment import package
from slslab_workers.models import own_packages
from slslab_workers.plan import Plan


class RemoteLauncher:
    """Implements `InstanceLauncher`, and `Instances` for the latest launch.

    An instance has ended when its metered record is received. `check` raises the run's first failure: the recording has
    a record `failed` for an instance that fails.
    """

    def __init__(self, fleet: Fleet, recording: RemoteRecording, check: Callable[[], None]) -> None:
        self._fleet, self._recording, self.check = fleet, recording, check
        self._left = 0
        self._changed = threading.Condition()

    @contextmanager
    def launch(self, module: str, events: Sequence[Mapping[str, Any]], variables: Mapping[str, str]) -> Iterator[Self]:
        """Launch one instance per event, in containers of the worker's image."""
        self._left = len(events)
        plan = events[0].get("plan")
        others = own_packages(Plan.from_document(plan)) if plan else ()
        launch = {
            "module": module,
            "code": base64.b64encode(package(module, *others)).decode(),
            "events": events,
            "variables": variables,
            "fleet": vars(self._fleet),
        }
        status, body = self._recording.ask("POST", "/instances", launch)
        if status != 200:
            refusal = json.loads(body)
            raise HostError(refusal["message"], refusal.get("hint", "run `slslab status` to see the stack."))
        try:
            yield self
        finally:
            self._recording.ask("DELETE", "/instances")
            self._wait()

    def join(self) -> None:
        """Wait until all instances have succeeded; raises RunFailed as soon as one of them fails."""
        self._wait()
        self.check()

    def ended(self) -> None:
        """Record that an instance has ended."""
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def _wait(self) -> None:
        """Wait until all instances have ended, or the emulator has."""
        with self._changed:
            # Bounded waits, so that Ctrl-C takes effect.
            while self._left and self._recording.receives():
                self._changed.wait(0.5)

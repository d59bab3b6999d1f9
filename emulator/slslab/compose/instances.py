"""Launch instances in the emulator of a compose stack, from the driver's side."""

import base64
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from slslab.errors import HostError
from slslab.run.records import InstanceRecord
from slslab.stack.instances.processes import failure
from slslab_workers.architecture import Fleet
from slslab_workers.driver.deployment import package
from slslab_workers.models import own_packages
from slslab_workers.plan import Plan


class RemoteLauncher:
    """Implements `InstanceLauncher`, and `Instances` for the latest launch.

    An instance has ended when its metered record is received. `ask` sends a request to the emulator; `path` is the
    recording's.
    """

    def __init__(self, fleet: Fleet, ask: Callable[[str, str, Any], tuple[int, bytes]], path: str) -> None:
        self._fleet = fleet
        self._ask = ask
        self._path = f"{path}/instances"
        self._left = 0
        self._failed: InstanceRecord | None = None
        self._broken = False
        self._changed = threading.Condition()

    @contextmanager
    def launch(self, module: str, events: Sequence[Mapping[str, Any]], variables: Mapping[str, str]) -> Iterator[Self]:
        """Launch one instance per event, in containers of the worker's image."""
        self._left, self._failed = len(events), None
        plan = events[0].get("plan")
        others = own_packages(Plan.from_document(plan)) if plan else ()
        status, body = self._ask(
            "POST",
            self._path,
            {
                "module": module,
                "code": base64.b64encode(package(module, *others)).decode(),
                "events": events,
                "variables": variables,
                "fleet": {"instance_type": self._fleet.instance_type, "device": self._fleet.device},
            },
        )
        if status != 200:
            refusal = json.loads(body)
            raise HostError(refusal["message"], refusal.get("hint", "run `slslab status` to see the stack."))
        try:
            yield self
        finally:
            self._ask("DELETE", self._path, None)
            with self._changed:
                while self._left and not self._broken:
                    self._changed.wait(0.5)

    def check(self) -> None:
        """Raise the first failure, as RunFailed with the worker's rank; the other instances are ended then."""
        failed = self._failed
        if failed is None:
            if self._broken and self._left:
                raise HostError("The run's recording ended before its instances did.", "run `docker compose logs`.")
            return
        status, body = self._ask("GET", f"/slslab/logs/{quote(failed.id)}", None)
        with tempfile.NamedTemporaryFile() as log:
            Path(log.name).write_bytes(body if status == 200 else b"")
            raise failure(failed.id, failed.worker, failed.exit_code, Path(log.name))

    def join(self) -> None:
        """Wait until all instances have succeeded; raises RunFailed as soon as one of them fails."""
        with self._changed:
            # Bounded waits, so that Ctrl-C takes effect.
            while self._left and self._failed is None and not self._broken:
                self._changed.wait(0.5)
        self.check()

    def ended(self, record: InstanceRecord) -> None:
        """Record that an instance has ended, from its metered record."""
        with self._changed:
            self._left -= 1
            if record.status == "error" and self._failed is None:
                self._failed = record
            self._changed.notify_all()

    def broken(self) -> None:
        """Record that no further record will be received."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()

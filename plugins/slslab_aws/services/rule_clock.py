"""Send the events of rules with a schedule: one thread, which sleeps until the next event is due."""

import logging
import threading
import uuid
from datetime import UTC, datetime
from typing import Any

from moto.events.models import events_backends

from slslab.aws.arns import ACCOUNT
from slslab_aws.services.schedules import read_schedule
from slslab_aws.services.targets import Targets

LOG = logging.getLogger(__name__)
# When a rule is due if its schedule has no further times.
NEVER = datetime.max.replace(tzinfo=UTC)


class RuleClock:
    """The rules with a schedule, and when each is due next.

    `lock` protects all of moto's services; `services` wakes everything that waits for a change in them.
    """

    def __init__(self, lock: "threading.RLock", services: threading.Condition, targets: Targets) -> None:
        self._services = services
        self._changed = threading.Condition(lock)
        self._targets = targets
        self._due: dict[Any, datetime] = {}
        threading.Thread(target=self._run, name="rule-clock", daemon=True).start()

    def read(self) -> None:
        """Read the rules again after one may have changed; the caller holds the services' lock.

        A rule that was put or enabled is due after its whole rate, as on AWS; a disabled one is dropped.
        """
        now = datetime.now(UTC)
        before = self._due
        self._due = {
            rule: before.get(rule) or read_schedule(rule.scheduled_expression)(now) or NEVER for rule in _scheduled()
        }
        if before != self._due:
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while True:
                now = datetime.now(UTC)
                for rule in [rule for rule, time in self._due.items() if time <= now]:
                    try:
                        self._send(rule, now)
                    except Exception:  # the other rules continue
                        LOG.exception("the schedule of %s could not be sent", rule.arn)
                left = [(time - datetime.now(UTC)).total_seconds() for time in self._due.values()]
                # A wait beyond the maximum of threads ends early, and does nothing.
                self._changed.wait(min(max(min(left), 0), threading.TIMEOUT_MAX) if left else None)

    def _send(self, rule: Any, now: datetime) -> None:
        time, following = self._due.pop(rule), read_schedule(rule.scheduled_expression)
        upcoming = following(time)
        if upcoming is not None and upcoming <= now:  # this host slept; skip events that were due meanwhile
            upcoming = following(now)
        self._due[rule] = upcoming or NEVER
        self._targets.send(rule, _event(rule, time))
        self._services.notify_all()


def _scheduled() -> list[Any]:
    return [
        rule
        for backend in list(events_backends[ACCOUNT].values())
        for bus in backend.event_buses.values()
        for rule in bus.rules.values()
        if rule.scheduled_expression and rule.state != "DISABLED"
    ]


def _event(rule: Any, time: datetime) -> dict[str, Any]:
    """Return a schedule's event (documented: eventbridge/latest/userguide/eb-create-rule-schedule.html)."""
    return {
        **{"version": "0", "id": str(uuid.uuid4()), "detail-type": "Scheduled Event", "source": "aws.events"},
        **{"account": rule.account_id, "time": time.timestamp(), "region": rule.region_name},
        **{"resources": [rule.arn], "detail": {}, "ingestion-time": time.timestamp()},
    }

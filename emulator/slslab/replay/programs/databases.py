"""The tensor databases of a recorded run: their owners, and the CPU time of scripts in them."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from slslab.replay.programs.lambda_clock import lambda_clock_ns
from slslab.replay.programs.recording import Event
from slslab_workers.channels.scripts import PREFIX


class Databases:
    """Questions about events in their order: each execution of a script is counted once."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._owners = _owners(events)
        # By worker and the key that the script writes (of texts: reads), which follows the names in the resource.
        self._executions: dict[tuple[int, str], list[int]] = defaultdict(list)
        for event in events:
            if event["op"] == "tensor.script.run":
                key = event["resource"].partition(" ")[2]
                self._executions[event["worker"], key].append(event["cpu_ns"])

    def owner(self, event: Event) -> int:
        """Return the worker whose database this event asked; -1 if it asked none."""
        return self._owners.get(event["resource"].partition("/")[0], -1)

    def script_ns(self, event: Event) -> int:
        """Return the CPU time of the script that this event ran, 0 without a script or if it failed.

        For a database that does not report it: what the caller waited, which includes the database's work for other
        clients.
        """
        key = event["resource"].partition("/")[2]
        if event["op"] != "tensor.script" or event["failed"] or key.startswith(PREFIX):
            return 0
        executions = self._executions[self.owner(event), key]
        return executions.pop(0) if executions else max(0, lambda_clock_ns(event) - int(event["cpu_ns"]))


def _owners(events: Sequence[Event]) -> dict[str, int]:
    """Return, by a database's address, the worker that asks it most."""
    asked: dict[str, Counter[int]] = defaultdict(Counter)
    for event in events:
        if event["op"].startswith("tensor.") and event["worker"] >= 0 and "/" in event["resource"]:
            asked[event["resource"].partition("/")[0]][event["worker"]] += 1
    if len(asked) == 1:
        return dict.fromkeys(asked, 0)
    return {address: workers.most_common(1)[0][0] for address, workers in asked.items()}

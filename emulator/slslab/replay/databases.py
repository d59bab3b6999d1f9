"""The tensor databases of a recorded run: whose each is, and the CPU time that scripts took in them."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from slslab.replay.recording import Event
from slslab_workers.scripts import PREFIX


class Databases:
    """What is asked of events in their order: each execution of a script is told once."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._owners = _owners(events)
        # By its worker and the key that it writes (of texts: reads), behind the script's and its function's names.
        self._executions: dict[tuple[int, str], list[int]] = defaultdict(list)
        for event in events:
            if event["op"] == "tensor.script.run":
                key = event["resource"].partition(" ")[2]
                self._executions[event["worker"], key].append(event["cpu_ns"])

    def owner(self, event: Event) -> int:
        """The worker whose database this event asked; -1 if it asked none."""
        return self._owners.get(event["resource"].partition("/")[0], -1)

    def script_ns(self, event: Event) -> int:
        """CPU time of the script that this event had executed, 0 if it had none, or failed.

        Of a database that does not tell, what its caller waited for it: what it did for others meanwhile is in that.
        """
        key = event["resource"].partition("/")[2]
        if event["op"] != "tensor.script" or event["failed"] or key.startswith(PREFIX):
            return 0
        told = self._executions[self.owner(event), key]
        if told:
            return told.pop(0)
        return max(0, int(event["end_ns"] - event["start_ns"] - event["host_delay_ns"] - event["cpu_ns"]))


def _owners(events: Sequence[Event]) -> dict[str, int]:
    """Of each database's address the worker that asks it most."""
    asked: dict[str, Counter[int]] = defaultdict(Counter)
    for event in events:
        if event["op"].startswith("tensor.") and event["worker"] >= 0 and "/" in event["resource"]:
            asked[event["resource"].partition("/")[0]][event["worker"]] += 1
    if len(asked) == 1:
        return dict.fromkeys(asked, 0)
    return {address: workers.most_common(1)[0][0] for address, workers in asked.items()}

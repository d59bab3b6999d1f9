"""Which database was asked, and what its scripts took, by hand."""

from typing import Any

from slslab_lab.replay.programs.recording import Databases

MS = 1_000_000
FIRST, SECOND = "127.0.0.1:6001", "127.0.0.1:6002"


def event(op: str, resource: str, worker: int, **more: Any) -> dict[str, Any]:
    base = {"start_ns": 0, "end_ns": 0, "host_delay_ns": 0, "cpu_ns": 0, "failed": False}
    return {"op": op, "resource": resource, "worker": worker, **base, **more}


def ran(worker: int, what: str, cpu_ms: int) -> dict[str, Any]:
    return event("tensor.script.run", what, worker, cpu_ns=cpu_ms * MS)


def test_a_database_is_whose_asks_it_most() -> None:
    asked = [event("tensor.get", f"{FIRST}/a", worker) for worker in (0, 0, 1)]
    asked += [event("tensor.get", f"{SECOND}/a", worker) for worker in (1, 1, 0)]
    databases = Databases([*asked, event("object.get", "bucket/a", 1)])
    assert [databases.owner(asked[0]), databases.owner(asked[-1])] == [0, 1]
    assert databases.owner(event("object.get", "bucket/a", 1)) == -1


def test_the_only_database_is_the_first_workers() -> None:
    asked = event("tensor.get", f"{FIRST}/a", 3)
    assert Databases([asked]).owner(asked) == 0


def test_a_script_took_what_its_database_tells_in_its_order() -> None:
    """By the key that it wrote in that worker's database; of texts, read."""
    asked = [event("tensor.get", f"{FIRST}/a", 0), event("tensor.get", f"{SECOND}/a", 1)]
    told = [
        ran(0, "scripts/average run:mean", 3),
        ran(1, "scripts/average run:mean", 4),
        ran(0, "scripts/average run:mean", 5),
        ran(0, "lua/b6a1 run:texts", 6),
    ]
    databases = Databases([*asked, *told])
    calls = [(FIRST, "run:mean"), (FIRST, "run:mean"), (SECOND, "run:mean"), (FIRST, "run:texts")]
    found = [databases.server_ns(event("tensor.script", f"{address}/{key}", 0)) for address, key in calls]
    assert found == [3 * MS, 5 * MS, 4 * MS, 6 * MS]


def test_of_a_database_that_does_not_tell_it_is_what_the_caller_waited() -> None:
    """100 ms on the wall clock; for 15 of these the host was busy with others, for 25 with the caller."""
    script = event(
        "tensor.script", f"{FIRST}/run:mean", 0, end_ns=100 * MS, host_delay_ns=15 * MS, cpu_ns=25 * MS
    )  # fmt: skip
    assert Databases([script]).server_ns(script) == 60 * MS
    assert Databases([script]).server_ns({**script, "failed": True}) == 0
    assert Databases([script]).server_ns({**script, "cpu_ns": 99 * MS}) == 0


def test_storing_scripts_executes_none() -> None:
    stored = event("tensor.script", f"{FIRST}/slslab-scripts-1f38cac20cc54582", 0, end_ns=100 * MS)
    assert Databases([stored]).server_ns(stored) == 0
    assert Databases([stored]).server_ns({**stored, "op": "tensor.set"}) == 0


def test_a_parameter_server_s_work_is_that_of_the_push_or_of_one_pull() -> None:
    """Reading and adding count for the worker that pushed, writing for each worker that pulls, in turn."""
    done = [
        ("deserialise", 0, 5),
        ("merge", 0, 2),
        ("deserialise", 1, 7),
        ("merge", 1, 3),
        ("serialise", -1, 4),
        ("serialise", -1, 6),
    ]
    events = [event(f"parameter.{name}", "key", worker, cpu_ns=cpu_ms * MS) for name, worker, cpu_ms in done]
    asked = Databases(events)
    pushes = [event("parameter.push", f"key/{rank}", rank) for rank in range(2)]
    assert [asked.server_ns(push) for push in pushes] == [7 * MS, 10 * MS]
    pull = event("parameter.pull", "key", 0)
    assert [asked.server_ns(pull) for _ in range(3)] == [4 * MS, 6 * MS, 0]
    assert Databases([]).server_ns(pushes[0]) == 0

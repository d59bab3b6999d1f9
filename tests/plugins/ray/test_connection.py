"""Why a cluster cannot be reached: what Ray's errors say, in one line."""

from typing import Any

import pytest
import ray

from slslab.errors import HostError
from slslab_ray import connection
from slslab_ray.connection import connect, reason

# As Ray's client raises it when its server's process takes too long to start.
PROXY = """Initialization failure from server:
Traceback (most recent call last):
  File "/opt/ray/util/client/server/proxier.py", line 780, in Datapath
    raise RuntimeError(
RuntimeError: Proxy failed to Connect to backend! Check `ray_client_server.err` on the head node of the cluster.
"""
# An error of a task has no first line of a traceback.
TASK = """ray::described() (pid=7, ip=10.0.0.2)
  File "/opt/described.py", line 3, in described
slslab.errors.HostError: it has no /proc.
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PROXY, "Proxy failed to Connect to backend! Check `ray_client_server.err` on the head node of the cluster"),
        (TASK, "it has no /proc"),
        ('Lost.\n  File "/opt/a.py", line 3, in a\nAssertionError\n', "AssertionError"),
        (
            "The actor died unexpectedly before finishing this task.\n\tclass_name: PoolActor",
            "The actor died unexpectedly before finishing this task",
        ),
        ("[Errno 111] Connection refused", "[Errno 111] Connection refused"),
        ("", "ConnectionError"),
    ],
)
def test_the_reason_is_one_line(text: str, why: str) -> None:
    assert reason(ConnectionError(text)) == why


@pytest.mark.parametrize("failing", [0, 2, 3])
def test_a_client_whose_process_is_gone_at_once_asks_again(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def init(address: str, **_: Any) -> None:
        asked.append(address)
        if len(asked) <= failing:
            raise ConnectionAbortedError(PROXY)

    monkeypatch.setattr(connection, "reach", lambda _address: None)
    monkeypatch.setattr(ray, "init", init)
    if failing < connection.TRIES:
        connect("ray://head:10001")
    else:
        with pytest.raises(HostError, match="The Ray cluster at ray://head:10001 can't be used: Proxy failed"):
            connect("ray://head:10001")
    assert asked == ["ray://head:10001"] * min(failing + 1, connection.TRIES)

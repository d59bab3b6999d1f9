"""How many bytes each worker received from each other one, by hand-made causes."""

from pathlib import Path
from typing import Any

import pytest

from slslab.run.parquet import read_table
from slslab_lab.pages.communication import Transfer, build_communication

RECORDED = Path(__file__).parents[3] / "results" / "lambdaml-table1"


def event(number: int, op: str, worker: int, **more: Any) -> dict[str, Any]:
    base = {
        "event": number, "op": op, "worker": worker, "bytes": 100, "resource": "b/k", "etag": "1", "failed": False,
        "causes": [], "function": "slslab-run",
    }  # fmt: skip
    return base | more


def test_a_get_is_of_the_put_with_its_etag_and_not_of_what_came_before() -> None:
    events = [
        event(0, "object.put", 1, etag="old"),
        event(1, "object.put", 1),
        event(2, "object.put", 0, resource="b/other"),
        # Its own put came before it in program order.
        event(3, "object.get", 0, causes=[1, 2]),
        event(4, "object.get", 0, failed=True, causes=[1]),
    ]
    found = build_communication(events, 2)
    assert found.transfers == (Transfer("1", "0", "object store", 100, 1),)
    assert found.participants == ("0", "1")
    assert (found.unknown_bytes, found.grouped) == (0, "")


def test_stores_are_apart_and_one_publish_reaches_many() -> None:
    events = [
        event(0, "queue.publish", 2, resource="exchange", etag="m", bytes=7, function="slslab-run-supervisor"),
        event(1, "queue.deliver", 0, resource="queue.0", etag="m", bytes=7, causes=[0]),
        event(2, "queue.deliver", 1, resource="queue.1", etag="m", bytes=7, causes=[0]),
        event(3, "tensor.set", 1, etag=None),
        event(4, "tensor.get", 0, etag=None, causes=[3]),
        event(5, "tensor.get", 0, etag=None, causes=[3, 4]),
        event(6, "object.put", -1),
        event(7, "object.get", 0, causes=[5, 6]),
    ]
    found = build_communication(events, 2)
    assert found.transfers == (
        Transfer("driver", "0", "object store", 100, 1),
        Transfer("1", "0", "tensor database", 200, 2),
        Transfer("supervisor", "0", "queue", 7, 1),
        Transfer("supervisor", "1", "queue", 7, 1),
    )
    assert found.participants == ("driver", "0", "1", "supervisor")


def test_peers_send_to_the_next_lower_rank() -> None:
    events = [event(rank, "peer.allreduce", rank, bytes=100 + rank, requests=4) for rank in range(3)]
    # Broken off.
    events.append(event(3, "peer.allreduce", 1, requests=4, failed=True))
    found = build_communication(events, 3)
    assert found.transfers == (
        Transfer("0", "2", "all-reduce", 100, 4),
        Transfer("1", "0", "all-reduce", 101, 4),
        Transfer("2", "1", "all-reduce", 102, 4),
    )


def test_several_functions_beside_the_workers_are_told_apart() -> None:
    named = {"function": "slslab-run-aggregate"}
    events = [
        event(0, "object.put", 0),
        event(1, "object.get", 1, causes=[0], **named),
        event(2, "object.get", 2, causes=[0], **named),
    ]
    found = build_communication(events, 1)
    assert found.participants == ("0", "aggregate", "aggregate 2")
    assert [transfer.target for transfer in found.transfers] == ["aggregate", "aggregate 2"]


def test_bytes_of_unknown_makers_are_counted_apart() -> None:
    found = build_communication([event(0, "object.get", 0)], 1)
    assert (found.transfers, found.unknown_bytes) == ((), 100)


def test_many_workers_are_taken_together() -> None:
    """64 workers: pairs; workers 63 and 62 are one of them."""
    puts = [event(rank, "object.put", rank, resource=f"b/{rank}") for rank in range(64)]
    gets = [event(64 + rank, "object.get", 0, resource=f"b/{rank}", causes=[rank]) for rank in range(64)]
    found = build_communication([*puts, *gets], 64)
    assert len(found.participants) == 32
    assert found.transfers[-1] == Transfer("62–63", "0–1", "object store", 200, 2)
    assert found.grouped == "64 workers are drawn in groups of 2."


@pytest.mark.parametrize(
    ("run", "store"),
    [("s3", "object store"), ("memcached", "Memcached cache"), ("dynamodb", "DynamoDB table")],
)
def test_a_recordings_vectors_are_drawn_whatever_channel_they_took(run: str, store: str) -> None:
    trace = read_table(RECORDED / f"lr-{run}" / "trace.parquet").events
    found = build_communication(trace, 2)
    between = {(each.source, each.target): each.store for each in found.transfers}
    assert between["0", "1"] == between["1", "0"] == store
    assert found.unknown_bytes == 0


def test_a_parameter_server_receives_every_push_and_sends_every_sum() -> None:
    trace = read_table(RECORDED / "kmeans-10-parameter-server" / "trace.parquet").events
    server = "parameter server"
    assert set(build_communication(trace, 2).transfers) >= {
        Transfer("0", server, server, 5 * 2320, 5),
        Transfer("1", server, server, 5 * 2320, 5),
        Transfer(server, "0", server, 5 * 2320, 5),
        Transfer(server, "1", server, 5 * 2320, 5),
        # The first parameters are an object.
        Transfer("0", "1", server, 1120, 1),
    }

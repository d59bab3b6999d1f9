"""A peer as its functions see it: its own database, the peers that it trusts, their databases, and its queues."""

import json
import math
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import cache, cached_property
from typing import Any
from urllib.parse import quote

from slslab_workers.channels import endpoints
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects, aws_client, connected
from slslab_workers.channels.queues import Queues, open_queues
from slslab_workers.channels.stream import Unreachable
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.settings import PING_INTERVAL_S, PINGS, Execution, Keys
from slslab_workers.spirt.trust import Identity

PING_ANSWER_S = 1.0
# How long a peer waits before it pings missing peers.
LOOK_S = 1.0
# In the hash of absent peers, fields with this prefix hold the peers left out of an epoch.
LATE = "late "


class Forgotten(Exception):
    """The database has lost something that was stored in it."""


class Peer(ExitStack):
    """The peer of one execution. Use it as a context manager, which closes its connections."""

    def __init__(self, execution: Execution, context: Any) -> None:
        super().__init__()
        self.execution = execution
        self.plan = execution.plan
        self.rank = execution.rank
        self.epoch = execution.epoch
        self.context = context
        self.options = self.plan.options
        self.roster = Roster.of(self.plan.workers, self.options)
        self.keys = Keys(self.plan)
        self.tracer = Tracer(run=self.plan.run, worker=self.rank, invocation=context.aws_request_id)
        self.tracer.epoch = self.epoch
        self.database = self.enter_context(TensorDatabase(endpoints.tensor_urls()[self.rank], self.tracer))
        self._others: dict[int, TensorDatabase] = {}

    @cached_property
    def queues(self) -> Queues:
        """Connect to the queues on first use and return them."""
        return self.enter_context(open_queues(endpoints.queue_url(), self.tracer))

    @cached_property
    def objects(self) -> Objects:
        """Return the run's bucket."""
        return connected(self.execution.bucket, self.tracer)

    @cached_property
    def identity(self) -> Identity:
        """Return the peer's key pair from its own database."""
        return Identity.from_pem(self.stored(self.keys.private_key))

    @cached_property
    def admission(self) -> str:
        """Return the run's admission secret, which the driver gave this peer when it started."""
        return self.stored(self.keys.admission).decode()

    def stored(self, key: str, database: TensorDatabase | None = None) -> bytes:
        """Return a key's value in a peer's database, by default this peer's; Forgotten if the key is missing."""
        database = database or self.database
        value = database.command("GET", key)
        if value is None:
            lost_by = f"the database {database.host}:{database.port}"
            raise Forgotten(f"Peer {self.rank} asked for {key} in epoch {self.epoch}, and {lost_by} has lost it.")
        return bytes(value)

    def trusted(self) -> dict[int, dict[str, Any]]:
        """Return the admitted peers, without this one, by rank: address, port, public key and, once received, the
        password (encrypted for this peer)."""
        return self._records(self.keys.trusted)

    def trust(self, rank: int, record: Mapping[str, Any]) -> None:
        """Admit a peer, or add to its record."""
        self.database.command("HSET", self.keys.trusted, rank, json.dumps(record))

    def first_epochs(self) -> dict[int, int]:
        """Return the first epoch of every peer that takes part, now or later, and this peer's once it is known."""
        return {rank: int(epoch) for rank, epoch in self._records(self.keys.first_epochs).items()}

    def set_first_epoch(self, rank: int, epoch: int) -> None:
        """Let a peer take part from this epoch on."""
        self.database.command("HSET", self.keys.first_epochs, rank, epoch)

    def taking_part(self) -> set[int]:
        """Return the ranks that take part in this epoch: this peer, and the trusted peers that have begun."""
        first = self.first_epochs()
        return {self.rank, *(rank for rank in self.trusted() if first.get(rank, math.inf) <= self.epoch)}

    def database_of(self, rank: int) -> TensorDatabase:
        """Connect to a trusted peer's database with the password that it sent; KeyError if it isn't trusted."""
        if rank == self.rank:
            return self.database
        if rank not in self._others:
            record = self.trusted()[rank]
            password = self.identity.decrypt(record["password"])
            credentials = f":{quote(password, safe='')}@" if password else ""
            url = f"redis://{credentials}{record['address']}:{record['port']}"
            self._others[rank] = self.enter_context(TensorDatabase(url, self.tracer, connect_s=PING_ANSWER_S))
        return self._others[rank]

    def check_alive(self, rank: int, *, busy: bool = False) -> bool:
        """Return whether a peer's database answers one of three pings, a second apart. If it doesn't, or the peer isn't
        trusted, record its failure; Unreachable if it is this peer's own.

        A database that may be `busy` only has to accept connections, because a running Lua script blocks all other
        clients.
        """
        for attempt in range(PINGS):
            if attempt:
                self.database.pause(PING_INTERVAL_S)
            if self._takes_connections(rank) if busy else self._answers(rank):
                return True
        if rank == self.rank:
            raise Unreachable(f"Peer {rank}'s own database does not answer.")
        self.mark_failed(rank)
        return False

    def first_alive(self, ranks: Iterable[int]) -> int:
        """Return the first of these ranks, this peer's included, with a database that answers."""
        return next(rank for rank in ranks if rank == self.rank or self._answers(rank))

    def _answers(self, rank: int) -> bool:
        """Ping once. If the peer's password isn't known yet, only try the port."""
        if rank == self.rank or "password" in self.trusted().get(rank, {}):
            return self.database_of(rank).ping(PING_ANSWER_S)
        return self._takes_connections(rank)

    def _takes_connections(self, rank: int) -> bool:
        with self.tracer.span("ping", "wait") as span:
            try:
                record = self.trusted()[rank]
                socket.create_connection((record["address"], record["port"]), PING_ANSWER_S).close()
                return True
            except (KeyError, OSError):
                span.failed = True
                return False

    def mark_failed(self, rank: int) -> None:
        """Record that a peer failed in this epoch; it won't return."""
        record = {"epoch": self.epoch, "time": time.time(), "found_by": self.rank}
        self.database.command("HSETNX", self.keys.inactive, rank, json.dumps(record))
        self.database.command("HDEL", self.keys.trusted, rank)

    def failed(self) -> dict[int, dict[str, Any]]:
        """Return the peers that this one saw fail; see `absent`."""
        return self.absent()[0]

    def leave_out(self, ranks: list[int]) -> None:
        """Record that these peers came too late to this epoch's barrier."""
        self.database.command("HSET", self.keys.inactive, f"{LATE}{self.epoch}", json.dumps(ranks))

    def absent(self) -> tuple[dict[int, dict[str, Any]], dict[int, list[int]]]:
        """Return two dicts. By rank, the peers that this one saw fail, with epoch, wall time (s) and who noticed; by
        epoch, the ranks that it left out."""
        absent = dict(self._fields(self.keys.inactive))
        late = {int(field.removeprefix(LATE)): absent.pop(field) for field in tuple(absent) if field.startswith(LATE)}
        return {int(rank): record for rank, record in absent.items()}, late

    def active(self) -> list[int]:
        """Return the ranks of the peers aggregated in this epoch, this peer's included."""
        return [int(rank) for rank in json.loads(self.stored(self.keys.active(epoch=self.epoch)))]

    def set_active(self, ranks: list[int]) -> None:
        """Store the active ranks, which are aggregated in this epoch."""
        self.database.command("SET", self.keys.active(epoch=self.epoch), json.dumps(sorted(ranks)))

    def lineage(self, database: TensorDatabase) -> dict[str, Any]:
        """Return the history of the parameters in a peer's database; see `rounds.update_model`."""
        return dict(json.loads(self.stored(self.keys.lineage, database)))

    def set_lineage(self, epoch: int, digest: str, *, changing: bool = False) -> None:
        """Record that the parameters are from before this epoch's update, or (`changing`) that it is running."""
        record = {"epoch": epoch, "digest": digest, "changing": changing}
        self.database.command("SET", self.keys.lineage, json.dumps(record))

    def stop_state(self) -> dict[str, Any]:
        """Return the best validation loss so far, and for how many epochs it hasn't improved."""
        stored = self.database.command("GET", self.keys.early_stop)
        return {"best": math.inf, "since": 0} if stored is None else json.loads(bytes(stored))

    def start(self, execution: Execution) -> None:
        """Start an execution of the state machine."""
        with self.tracer.span("execute", "other", execution.name) as span:
            _step_functions().start_execution(
                stateMachineArn=execution.machine, name=execution.name, input=json.dumps(execution.to_event())
            )
            span.requests = 1

    def _records(self, key: str) -> dict[int, Any]:
        return {int(rank): record for rank, record in self._fields(key)}

    def _fields(self, key: str) -> list[tuple[str, Any]]:
        fields = self.database.command("HGETALL", key)
        return [
            (bytes(field).decode(), json.loads(bytes(value)))
            for field, value in zip(fields[::2], fields[1::2], strict=True)
        ]


@cache
def _step_functions() -> Any:
    return aws_client("stepfunctions")

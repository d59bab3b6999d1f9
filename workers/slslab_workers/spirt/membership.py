"""SPIRT's membership functions, which need no torch: a peer's start, its admission, and the heartbeat."""

import json
import time
from collections.abc import Callable, Mapping, Set
from typing import Any

from slslab_workers.channels.objects import aws_client
from slslab_workers.spirt import joining
from slslab_workers.spirt.peer import LOOK_S, Peer
from slslab_workers.spirt.settings import RESERVE_S, Execution, password_queue, waiting_queue
from slslab_workers.spirt.trust import Identity, Untrusted, encrypt, verify
from slslab_workers.training.keys import Key
from slslab_workers.training.lifetime import remaining_s

# Kinds of records: a request to join, and the reply that contains the password.
JOIN, PASSWORD = "join", "password"


def on_peer(work: Callable[[Peer, Mapping[str, Any]], object]) -> Callable[[Mapping[str, Any], Any], Any]:
    """Wrap `work` in a Lambda handler that runs it on the peer named in the event."""

    def handler(event: Mapping[str, Any], context: Any) -> object:
        with Peer(Execution.from_event(event["input"]), context) as peer:
            return work(peer, event)

    handler.__doc__ = work.__doc__
    return handler


@on_peer
def init_peers(peer: Peer, event: Mapping[str, Any]) -> dict[str, Any]:
    """Make the peer's keys, ask all others to admit it, and invoke init_model.

    A peer that joins later receives a model when its epoch begins. Until then none of its functions runs, so it admits
    the others now: their requests have been waiting in its queue since they started.

    If init_model fails, its payload is returned as `failure`, so that the driver sees the error unchanged.
    """
    with peer.tracer.span("keys", "other"):
        identity = Identity.fresh()
    keys, command = peer.keys, peer.database.command
    command("DEL", keys.trusted, keys.requests, keys.seen, keys.inactive, keys.early_stop)
    command("DEL", keys.first_epochs, keys.model_epoch)
    command("SET", keys.private_key, identity.private_pem)
    command("SET", keys.public_key, identity.public_pem)
    command("SET", keys.admission, event["admission"])
    for other in range(peer.plan.workers):
        if other != peer.rank:
            request = identity.sign(_own_record(peer, JOIN, other), peer.admission)
            # Store the nonce before sending it: the reply must contain it.
            command("HSET", keys.requests, other, request["nonce"])
            _send(peer, waiting_queue(peer.plan, rank=other), request)
    roster = peer.roster
    if peer.rank in roster.joins:
        founders, others = set(roster.founders), set(roster.active(roster.joins[peer.rank])) - {peer.rank}
        _collect(peer, identity, waiting_queue, _admit, founders, others - founders)
        return {"rank": peer.rank, "failure": None}
    for founder in roster.founders:
        peer.set_first_epoch(founder, 0)
    return {"rank": peer.rank, "failure": _invoke(peer, event["init_model"], {"input": event["input"]})}


@on_peer
def auth(peer: Peer, _event: Mapping[str, Any]) -> None:
    """Run Authentification: hand newcomers the model, admit peers that ask, and exchange passwords.

    In its first epoch a peer waits until every other peer has answered or failed. Later it waits a while for peers that
    the plan lets join after this epoch.
    """
    joining.hand_over(peer, joining.newcomers(peer))
    identity, roster = peer.identity, peer.roster
    first = peer.first_epochs()[peer.rank] == peer.epoch
    others = (peer.taking_part() | set(roster.founders if peer.epoch == 0 else ())) - {peer.rank} if first else set()
    asking = roster.asking(peer.epoch) - peer.failed().keys()
    _collect(peer, identity, waiting_queue, _admit, others - peer.trusted().keys(), asking - peer.trusted().keys())
    unknown = peer.trusted().keys() - set(joining.reachable(peer))
    _collect(peer, identity, password_queue, _learn, others & unknown, asking & unknown)


@on_peer
def check_heartbeat(peer: Peer, _event: Mapping[str, Any]) -> None:
    """Run CheckHeartbeat: ping all active peers' databases, its own included, and delete the minibatches' gradients."""
    peer.set_active([rank for rank in peer.active() if peer.check_alive(rank)])
    batches = range(peer.plan.batches)
    unneeded = [
        *(peer.keys.gradient(epoch=peer.epoch, batch=batch) for batch in batches),
        peer.keys.json_gradients(epoch=peer.epoch),
        *(peer.keys.batch_buffers(epoch=peer.epoch, batch=batch) for batch in batches),
    ]
    peer.database.delete(unneeded, "other", overhead=False)


def _own_record(peer: Peer, kind: str, to: int) -> dict[str, Any]:
    """Return the fields that all of this peer's records share. With `to`, no other peer accepts the record."""
    return {
        "kind": kind,
        "run": peer.plan.run,
        "rank": peer.rank,
        "to": to,
        "address": peer.database.host,
        "port": peer.database.port,
    }


def _send(peer: Peer, queue: str, record: Mapping[str, Any]) -> None:
    peer.queues.publish(queue, json.dumps(record).encode(), "other")


def _collect(
    peer: Peer,
    identity: Identity,
    kind: Key,
    accept: Callable[[Peer, Identity, bytes], int],
    awaited: Set[int],
    hoped_for: Set[int] = frozenset(),
) -> None:
    """Take records from the peer's queue of this kind until all awaited ranks are accepted, or only the available ones.

    It waits at most PATIENCE_S for the ranks in `hoped_for`. Records by other senders aren't trusted: they are dropped
    and logged. An admitted peer that has lost its database has failed, so it isn't waited for.
    """
    queue, accepted, failed = kind(peer.plan, rank=peer.rank), set[int](), set[int]()
    patient_until = time.monotonic() + joining.PATIENCE_S
    while True:
        expected = (awaited | hoped_for if time.monotonic() < patient_until else awaited) - failed
        missing = expected - accepted
        left_s = remaining_s(peer.context) - RESERVE_S if missing else 0.0
        message = peer.queues.consume(queue, min(LOOK_S, max(0.0, left_s)), "other")
        if message is not None:
            try:
                accepted.add(accept(peer, identity, message.body))
            except Untrusted as error:
                print(f"A record in {queue} was dropped: {error}.")
            message.ack()
            if expected and expected <= accepted:
                return
        elif not missing:
            return
        elif left_s <= 0:
            raise TimeoutError(f"Peer {peer.rank} received records only from peers {sorted(accepted)}.")
        else:
            admitted = missing & peer.trusted().keys()
            failed |= {rank for rank in admitted if not peer.check_alive(rank)} | peer.failed().keys()


def _admit(peer: Peer, identity: Identity, body: bytes) -> int:
    request = _checked(peer, body, JOIN)
    rank = int(request["rank"])
    if not joining.may_be_admitted(peer, rank):
        raise Untrusted(f"peer {rank} asks to join too late")
    peer.trust(rank, {**peer.trusted().get(rank, {}), **_address(request)})
    reply = {**_own_record(peer, PASSWORD, rank), "for": request["nonce"]}
    reply["password"] = encrypt(peer.database.password, request["public_key"])
    _send(peer, password_queue(peer.plan, rank=rank), identity.sign(reply, peer.admission))
    return rank


def _learn(peer: Peer, identity: Identity, body: bytes) -> int:
    reply = _checked(peer, body, PASSWORD)
    rank = int(reply["rank"])
    asked = peer.database.command("HGET", peer.keys.requests, rank)
    if asked is None or bytes(asked).decode() != reply.get("for"):
        raise Untrusted(f"peer {rank} answers a request that was not sent")
    identity.decrypt(str(reply.get("password")))
    if not joining.may_be_admitted(peer, rank):
        raise Untrusted(f"peer {rank} answers too late")
    peer.trust(rank, {**_address(reply), "password": reply["password"]})
    return rank


def _checked(peer: Peer, body: bytes, kind: str) -> dict[str, Any]:
    """Return a signed record if it is new and was sent by another peer of this run to this one; else raise Untrusted.

    A peer can use only one key: the first that was received.
    """
    content = verify(body, peer.admission)
    rank = content.get("rank")
    addressed = (content.get("kind"), content.get("run"), content.get("to")) == (kind, peer.plan.run, peer.rank)
    if not addressed or type(rank) is not int or rank == peer.rank or not 0 <= rank < peer.plan.workers:
        raise Untrusted("it is not meant for this peer")
    known = peer.trusted().get(rank)
    if known is not None and known["public_key"] != content["public_key"]:
        raise Untrusted(f"peer {rank} signed with another key before")
    if not peer.database.command("SADD", peer.keys.seen, content["nonce"]):
        raise Untrusted(f"peer {rank} sent it before")
    return content


def _address(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("address", "port", "public_key")}


def _invoke(peer: Peer, function: str, event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Invoke another function and wait for it, as released; return its payload if it failed."""
    with peer.tracer.span("invoke", "wait", function) as span:
        client = aws_client("lambda", retries={"total_max_attempts": 1}, read_timeout=peer.plan.timeout)
        answer = client.invoke(FunctionName=function, Payload=json.dumps(event).encode())
        payload: dict[str, Any] = json.loads(answer["Payload"].read())
        client.close()
        span.requests = 1
        return payload if answer.get("FunctionError") else None

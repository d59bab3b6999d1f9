"""SPIRT's membership functions: a peer's birth, its admission by the others, and the heartbeat. They need no torch."""

import json
import time
from collections.abc import Callable, Mapping, Set
from typing import Any

import boto3
import botocore.config

from slslab_workers.lifetime import remaining_s
from slslab_workers.spirt import joining
from slslab_workers.spirt.peer import LOOK_S, RESERVE_S, Peer
from slslab_workers.spirt.settings import Execution, password_queue, waiting_queue
from slslab_workers.spirt.trust import Identity, Untrusted, encrypt, verify
from slslab_workers.tensors import Unreachable

# What a record is for.
JOIN, PASSWORD = "join", "password"


def on_peer(work: Callable[[Peer, Mapping[str, Any]], dict[str, Any]]) -> Callable[[Mapping[str, Any], Any], Any]:
    """A Lambda handler that works on the peer which its event names."""

    def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        with Peer(Execution.from_event(event), context) as peer:
            return work(peer, event)

    handler.__doc__ = work.__doc__
    return handler


@on_peer
def init_peers(peer: Peer, event: Mapping[str, Any]) -> dict[str, Any]:
    """Make the peer's keys, ask all others to be admitted, and have its model made.

    One that joins later is handed a model when the time has come. It has no function until then, so it admits the
    others now: their requests have been waiting for it since their own births.

    If the function for the model fails, its payload is returned as `failure`, so that its error stays its own.
    """
    with peer.tracer.span("keys", "other"):
        identity = Identity.fresh()
    keys, command = peer.keys, peer.database.command
    command("DEL", keys.trusted, keys.requests, keys.seen, keys.inactive, keys.early_stop)
    command("DEL", keys.first_epochs, keys.given)
    command("SET", keys.private_key, identity.private_pem)
    command("SET", keys.public_key, identity.public_pem)
    command("SET", keys.admission, event["admission"])
    for other in range(peer.plan.workers):
        if other != peer.rank:
            request = identity.sign(_own_record(peer, JOIN, other), peer.admission)
            # Before it is sent: the answer must name this nonce.
            command("HSET", keys.requests, other, request["nonce"])
            _send(peer, waiting_queue(peer.plan, other), request)
    roster = peer.settings.roster
    if peer.rank in roster.joins:
        founders, others = set(roster.founders), set(roster.active(roster.joins[peer.rank])) - {peer.rank}
        queue = waiting_queue(peer.plan, peer.rank)
        _collect(peer, queue, founders, lambda body: _admit(peer, identity, body), others - founders)
        return {"rank": peer.rank, "failure": None}
    for founder in roster.founders:
        peer.take_in(founder, 0)
    return {"rank": peer.rank, "failure": _invoke(peer, event["init_model"], {"input": event["input"]})}


@on_peer
def auth(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """Authentification: hand the model to who takes part for the first time, admit who asks, exchange passwords.

    A peer waits in its first epoch until it has met all others or found them dead; later, for a time, for those whom
    the plan has join after this epoch.
    """
    joining.hand_over(peer, joining.newcomers(peer))
    identity, roster = peer.identity, peer.settings.roster
    first = peer.first_epochs()[peer.rank] == peer.epoch
    others = (peer.taking_part() | set(roster.founders if peer.epoch == 0 else ())) - {peer.rank} if first else set()
    asking = roster.asking(peer.epoch) - peer.dead().keys()
    admitted = _collect(
        peer,
        waiting_queue(peer.plan, peer.rank),
        others - peer.trusted().keys(),
        lambda body: _admit(peer, identity, body),
        asking - peer.trusted().keys(),
    )
    unknown = peer.trusted().keys() - set(joining.reachable(peer))
    learnt = _collect(
        peer,
        password_queue(peer.plan, peer.rank),
        others & unknown,
        lambda body: _learn(peer, identity, body),
        asking & unknown,
    )
    return {"admitted": admitted, "learnt": learnt}


@on_peer
def check_heartbeat(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """CheckHeartbeat: ping the own database and every active peer's, and delete the minibatches' gradients."""
    active = [rank for rank in peer.active() if _is_still_there(peer, rank)]
    peer.set_active(active)
    batches = range(peer.plan.batches)
    doomed = [peer.keys.gradient(peer.epoch, batch) for batch in batches]
    doomed.append(peer.keys.json_gradients(peer.epoch))
    doomed += [peer.keys.batch_buffers(peer.epoch, batch) for batch in batches]
    peer.database.delete(doomed, "other", overhead=False)
    return {"active": active}


def _is_still_there(peer: Peer, rank: int) -> bool:
    if peer.is_alive(rank):
        return True
    if rank == peer.rank:
        raise Unreachable(f"The own database of peer {rank} does not answer.")
    peer.mark_dead(rank)
    return False


def _own_record(peer: Peer, kind: str, to: int) -> dict[str, Any]:
    """What a record of this peer says, whatever it is for: a record that went to another peer is a replay here."""
    own = {"address": peer.database.host, "port": peer.database.port}
    return {"kind": kind, "run": peer.plan.run, "rank": peer.rank, "to": to, **own}


def _send(peer: Peer, queue: str, record: Mapping[str, Any]) -> None:
    peer.queues.publish(queue, json.dumps(record).encode(), "other")


def _collect(
    peer: Peer,
    queue: str,
    awaited: Set[int],
    accept: Callable[[bytes], int],
    hoped_for: Set[int] = frozenset(),
) -> list[int]:
    """Take records until those of the awaited ranks were accepted, or what is there now; ranks that were accepted.

    Those that are only hoped for are waited for as long as a newcomer's peers have patience. A record that is not to be
    trusted is dropped: it came from somebody else, and says so in the function's log. A peer that was admitted and
    whose database is gone has died, and is awaited no more.
    """
    accepted, gone = set[int](), set[int]()
    patient_until = time.monotonic() + joining.PATIENCE_S
    while True:
        hoped = hoped_for if time.monotonic() < patient_until else set[int]()
        wanted = (awaited | hoped) - gone
        missing = wanted - accepted
        left_s = remaining_s(peer.context) - RESERVE_S if missing else 0.0
        message = peer.queues.consume(queue, min(LOOK_S, max(0.0, left_s)), "other")
        if message is not None:
            try:
                accepted.add(accept(message.body))
            except Untrusted as error:
                print(f"A record in {queue} was dropped: {error}.")
            message.ack()
            if wanted and wanted <= accepted:
                return sorted(accepted)
        elif not missing:
            return sorted(accepted)
        elif left_s <= 0:
            raise TimeoutError(f"Peer {peer.rank} heard of peers {sorted(accepted)} only until the time was over.")
        else:
            admitted = missing & peer.trusted().keys()
            gone |= {rank for rank in admitted if not _is_still_there(peer, rank)} | peer.dead().keys()


def _admit(peer: Peer, identity: Identity, body: bytes) -> int:
    """Admit who signed this request, and send it the password of this peer's database."""
    request = _checked(peer, body, JOIN)
    rank = int(request["rank"])
    if not joining.may_be_admitted(peer, rank):
        raise Untrusted(f"peer {rank} asks too late")
    peer.trust(rank, {**peer.trusted().get(rank, {}), **_address(request)})
    reply = {**_own_record(peer, PASSWORD, rank), "for": request["nonce"]}
    reply["password"] = encrypt(peer.database.password, request["public_key"])
    _send(peer, password_queue(peer.plan, rank), identity.sign(reply, peer.admission))
    return rank


def _learn(peer: Peer, identity: Identity, body: bytes) -> int:
    """Keep the password that a peer sent as the answer to this one's request, encrypted as it came."""
    reply = _checked(peer, body, PASSWORD)
    rank = int(reply["rank"])
    asked = peer.database.command("HGET", peer.keys.requests, rank)
    if asked is None or bytes(asked).decode() != reply.get("for"):
        raise Untrusted(f"peer {rank} answers a question that was not asked")
    identity.decrypt(str(reply.get("password")))
    if not joining.may_be_admitted(peer, rank):
        raise Untrusted(f"peer {rank} answers too late")
    peer.trust(rank, {**_address(reply), "password": reply["password"]})
    return rank


def _checked(peer: Peer, body: bytes, kind: str) -> dict[str, Any]:
    """A signed record of another peer to this one, of this run, that was never seen; Untrusted if it is anything else.

    A peer signs with one key: the first that was heard.
    """
    content = verify(body, peer.admission)
    rank = content.get("rank")
    meant = (content.get("kind"), content.get("run"), content.get("to")) == (kind, peer.plan.run, peer.rank)
    if not meant or type(rank) is not int or rank == peer.rank or not 0 <= rank < peer.plan.workers:
        raise Untrusted("it is not meant for this peer")
    known = peer.trusted().get(rank)
    if known is not None and known["public_key"] != content["public_key"]:
        raise Untrusted(f"peer {rank} signed with another key before")
    if not peer.database.command("SADD", peer.keys.seen, content["nonce"]):
        raise Untrusted(f"peer {rank} has sent it before")
    return content


def _address(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("address", "port", "public_key")}


def _invoke(peer: Peer, function: str, event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Call another function and wait for it, as the released code does; its payload if it failed."""
    with peer.tracer.span("invoke", "wait", function) as span:
        session: Any = boto3.session.Session()
        config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=peer.plan.timeout)
        client = session.client("lambda", config=config)
        answer = client.invoke(FunctionName=function, Payload=json.dumps(event).encode())
        payload: dict[str, Any] = json.loads(answer["Payload"].read())
        client.close()
        span.requests = 1
        return payload if answer.get("FunctionError") else None

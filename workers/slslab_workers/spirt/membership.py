"""SPIRT's membership functions: a peer's birth, its admission by the others, and the heartbeat. They need no torch."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import boto3
import botocore.config

from slslab_workers.lifetime import remaining_s
from slslab_workers.spirt.peer import Peer
from slslab_workers.spirt.settings import Execution, password_queue, waiting_queue
from slslab_workers.spirt.trust import Identity, Untrusted, encrypt, verify


def on_peer(work: Callable[[Peer, Mapping[str, Any]], dict[str, Any]]) -> Callable[[Mapping[str, Any], Any], Any]:
    """A Lambda handler that works on the peer which its event names."""

    def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        with Peer(Execution.from_event(event), context) as peer:
            return work(peer, event)

    handler.__doc__ = work.__doc__
    return handler


@on_peer
def init_peers(peer: Peer, event: Mapping[str, Any]) -> dict[str, Any]:
    """Make the peer's keys, ask all others to be admitted, and have its model made."""
    with peer.tracer.span("keys", "other"):
        identity = Identity.fresh()
    peer.database.command("DEL", peer.keys.trusted, peer.keys.seen, peer.keys.inactive, peer.keys.early_stop)
    peer.database.command("SET", peer.keys.private_key, identity.private_pem)
    peer.database.command("SET", peer.keys.public_key, identity.public_pem)
    for other in range(peer.plan.workers):
        if other != peer.rank:
            _send(peer, waiting_queue(peer.plan, other), identity.sign(_own_record(peer)))
    _invoke(peer, event["init_model"], {"input": event["input"]})
    return {"rank": peer.rank}


@on_peer
def auth(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """Authentification: admit who asks, exchange passwords; in the first epoch until all peers are known."""
    identity = peer.identity
    expected = peer.plan.workers - 1 if peer.epoch == 0 else 0
    admitted = _collect(peer, waiting_queue(peer.plan, peer.rank), expected, lambda r: _admit(peer, identity, r))
    learnt = _collect(peer, password_queue(peer.plan, peer.rank), expected, lambda r: _learn(peer, identity, r))
    return {"admitted": admitted, "learnt": learnt}


@on_peer
def check_heartbeat(peer: Peer, _event: Mapping[str, Any]) -> dict[str, Any]:
    """CheckHeartbeat: ping the own database and every active peer's, and delete the minibatches' gradients."""
    active = [rank for rank in peer.active() if rank == peer.rank or _is_still_there(peer, rank)]
    peer.set_active(active)
    batches = range(peer.plan.batches)
    doomed = [peer.keys.gradient(peer.epoch, batch) for batch in batches]
    doomed += [peer.keys.batch_buffers(peer.epoch, batch) for batch in batches]
    peer.database.delete(doomed, "other", overhead=False)
    return {"active": active}


def _is_still_there(peer: Peer, rank: int) -> bool:
    if peer.is_alive(rank):
        return True
    peer.mark_dead(rank)
    return False


def _own_record(peer: Peer) -> dict[str, Any]:
    database = peer.database
    return {"run": peer.plan.run, "rank": peer.rank, "address": database.host, "port": database.port}


def _send(peer: Peer, queue: str, record: Mapping[str, Any]) -> None:
    peer.queues.publish(queue, json.dumps(record).encode(), "other")


def _collect(peer: Peer, queue: str, expected: int, accept: Callable[[dict[str, Any]], int]) -> list[int]:
    """Take records until those of `expected` peers were accepted, or what is there now; ranks that were accepted.

    A record that is not to be trusted is dropped: it came from somebody else, and says so in the function's log.
    """
    accepted: set[int] = set()
    while True:
        patience_s = max(1.0, remaining_s(peer.context)) if len(accepted) < expected else 0.0
        message = peer.queues.consume(queue, patience_s, "other")
        if message is None:
            if len(accepted) < expected:
                raise TimeoutError(f"Peer {peer.rank} heard of peers {sorted(accepted)} only until the time was over.")
            return sorted(accepted)
        try:
            accepted.add(accept(json.loads(message.body)))
        except Untrusted as error:
            print(f"A record in {queue} was dropped: {error}.")
        message.ack()
        if expected and len(accepted) == expected:
            return sorted(accepted)


def _admit(peer: Peer, identity: Identity, record: dict[str, Any]) -> int:
    """Admit who signed this request, once, and send it the password of this peer's database."""
    request = _checked(peer, record)
    known = peer.trusted().get(request["rank"], {})
    peer.trust(request["rank"], {**known, **_address(request)})
    reply = {**_own_record(peer), "for": request["nonce"], "to": request["rank"]}
    reply["password"] = encrypt(peer.database.password, request["public_key"])
    _send(peer, password_queue(peer.plan, request["rank"]), identity.sign(reply))
    return int(request["rank"])


def _learn(peer: Peer, identity: Identity, record: dict[str, Any]) -> int:
    """Keep the password that a peer sent, encrypted as it came."""
    reply = _checked(peer, record)
    if reply.get("to") != peer.rank:
        raise Untrusted(f"peer {reply['rank']} answered somebody else")
    identity.decrypt(reply["password"])
    peer.trust(reply["rank"], {**_address(reply), "password": reply["password"]})
    return int(reply["rank"])


def _checked(peer: Peer, record: dict[str, Any]) -> dict[str, Any]:
    """A signed record of this run that was never seen; Untrusted if it is anything else."""
    content = verify(record)
    if content.get("run") != peer.plan.run or content.get("rank") not in range(peer.plan.workers):
        raise Untrusted("a record is of another run")
    known = peer.trusted().get(content["rank"])
    if known is not None and known["public_key"] != content["public_key"]:
        raise Untrusted(f"a record of peer {content['rank']} is signed by another key")
    if not peer.database.command("SADD", peer.keys.seen, content["nonce"]):
        raise Untrusted(f"a record of peer {content['rank']} was replayed")
    return content


def _address(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("address", "port", "public_key")}


def _invoke(peer: Peer, function: str, event: Mapping[str, Any]) -> None:
    """Call another function and wait for it, as the released code does; its failure is this one's."""
    with peer.tracer.span("invoke", "wait", function) as span:
        session: Any = boto3.session.Session()
        config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=peer.plan.timeout)
        answer = session.client("lambda", config=config).invoke(
            FunctionName=function, Payload=json.dumps(event).encode()
        )
        span.requests = 1
        if answer.get("FunctionError"):
            payload = json.loads(answer["Payload"].read())
            raise RuntimeError(f"{payload.get('errorType')}: {payload.get('errorMessage')}")

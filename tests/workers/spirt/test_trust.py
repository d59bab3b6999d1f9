"""Who is a peer of SPIRT's: signatures, the admission secret, replays, and passwords that are exchanged and used."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers.architecture import architectures
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.queues import Queues, open_queues
from slslab_workers.channels.queues.barriers import prepare_epoch
from slslab_workers.plan import Plan
from slslab_workers.spirt import membership
from slslab_workers.spirt.peer import Peer
from slslab_workers.spirt.settings import Execution, password_queue, waiting_queue
from slslab_workers.spirt.trust import Identity, Untrusted, encrypt, verify

pytestmark = pytest.mark.server

SECRET = "admission"
PASSWORDS = ("p@ss:word/0", "änother one")


@pytest.fixture(scope="module")
def identity() -> Identity:
    return Identity.fresh()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[list[str], str]]:
    """Two databases, each with a password of its own, and a queue."""
    with (
        EmbeddedTensorDatabases(1, password=PASSWORDS[0]) as first,
        EmbeddedTensorDatabases(2, password=PASSWORDS[1]) as second,
    ):
        yield [first.endpoints[0], second.endpoints[0]], second.endpoints[1]


class Context:
    """A Lambda context; RESERVE_S of it are kept."""

    aws_request_id = "request"
    left_s = 30.0

    def get_remaining_time_in_millis(self) -> float:
        return 1000 * self.left_s


class Pair:
    """Two peers as their functions see them, each with no other password than its own."""

    def __init__(self, patch: pytest.MonkeyPatch, servers: tuple[list[str], str], run: str, parts: ExitStack) -> None:
        self.urls, self.queue = servers
        self.patch = patch
        options = architectures()["spirt"].complete({})
        self.plan = Plan(run, "spirt", "lenet", "digits", 4, 1, 1024, workers=2, options=options)
        self.queues: Queues = parts.enter_context(open_queues(self.queue, Tracer(lambda _: None)))
        patch.setenv("SLSLAB_QUEUE_URL", self.queue)
        patch.setattr(membership, "_invoke", lambda *_: None)
        patch.setattr("slslab_workers.channels.events.environment_sink", lambda: lambda _: None)
        patch.setattr("slslab_workers.spirt.peer.PING_INTERVAL_S", 0.01)
        patch.setattr(membership, "LOOK_S", 0.1)
        prepare_epoch(self.queues, run, 0, range(2))
        for rank in range(2):
            self.queues.declare(waiting_queue(self.plan, rank=rank))
            self.queues.declare(password_queue(self.plan, rank=rank))
        self.opened = parts

    def event(self, rank: int, epoch: int = 0) -> dict[str, Any]:
        """A function's event on this peer; the environment then belongs to this peer."""
        hidden = ["redis://:unknown@127.0.0.1:1", "redis://:unknown@127.0.0.1:1"]
        hidden[rank] = self.urls[rank]
        self.patch.setenv("SLSLAB_TENSOR_URLS", " ".join(hidden))
        given = Execution(self.plan, "bucket", rank, epoch, "machine").to_event()
        return {"input": given, "admission": SECRET, "init_model": "init_model"}

    def peer(self, rank: int, epoch: int = 0) -> Peer:
        """The peer in a function of its own, closed after the test."""
        return self.opened.enter_context(Peer(Execution.from_event(self.event(rank, epoch)["input"]), Context()))

    def call(self, function: Callable[..., Any], rank: int, epoch: int = 0) -> Any:
        """What a function of this peer returns."""
        return function(self.event(rank, epoch), Context())

    def start_peers(self) -> None:
        """Both peers, up to their requests."""
        for rank in range(2):
            assert self.call(membership.init_peers, rank) == {"rank": rank, "failure": None}

    def meet(self) -> None:
        """Both peers admit each other; rank 1's answer needs rank 0's request alone."""
        with self.peer(1) as one:
            other = one.identity
            membership._collect(one, other, waiting_queue, membership._admit, {0})
        self.call(membership.auth, 0)
        with self.peer(0) as zero:
            assert "password" in zero.trusted()[1]
        with self.peer(1) as one:
            membership._collect(one, other, password_queue, membership._learn, {0})


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, servers: tuple[list[str], str], run: str) -> Iterator[Pair]:
    with ExitStack() as parts:
        yield Pair(monkeypatch, servers, run, parts)
        for url in [*servers[0], servers[1]]:
            with redis.Redis.from_url(url) as client:
                client.flushall()


def signed(identity: Identity, **record: Any) -> bytes:
    return json.dumps(identity.sign(record, SECRET)).encode()


def reasons(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Why records were dropped, as the function's log has it."""
    lines = capsys.readouterr().out.splitlines()
    return [line.partition("was dropped: ")[2].rstrip(".") for line in lines if "was dropped" in line]


def test_a_record_travels_and_each_has_a_nonce_of_its_own(identity: Identity) -> None:
    body = signed(identity, rank=3, text="ü ☃", nonce="chosen")
    record = verify(body, SECRET)
    assert record == {"rank": 3, "text": "ü ☃", "nonce": record["nonce"], "public_key": identity.public_pem}
    assert len(record["nonce"]) == 32
    assert verify(signed(identity, rank=3), SECRET)["nonce"] != record["nonce"]
    # What travels may be ordered and spaced in any way.
    shuffled = json.dumps(dict(reversed(json.loads(body).items())), indent=2).encode()
    assert verify(shuffled, SECRET) == record


def test_every_change_of_a_record_is_noticed(identity: Identity) -> None:
    record = json.loads(signed(identity, rank=3, port=6379))
    signature = base64.b64decode(record["signature"])
    flipped = base64.b64encode(bytes([signature[0] ^ 1]) + signature[1:]).decode()
    changes: list[Mapping[str, Any]] = [
        *({name: "x"} for name in record),
        *({name: None} for name in record),
        {"port": "6379"},
        {"port": 6379.5},
        {"more": 1},
        {"signature": flipped},
        {"signature": 17},
        {"signature": ""},
        {"signature": record["signature"] + "="},
        {"public_key": Identity.fresh().public_pem},
        {"public_key": 17},
        {"public_key": ED25519},
    ]
    for change in changes:
        with pytest.raises(Untrusted):
            verify(json.dumps({**record, **change}).encode(), SECRET)
    for name in record:
        with pytest.raises(Untrusted):
            verify(json.dumps({key: value for key, value in record.items() if key != name}).encode(), SECRET)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"{", b"null", b"17", b'"text"', b"[]", b"{}", b"[" * 100_000, b'{"signature": {}}']
)
def test_what_is_no_record_is_not_trusted(body: bytes) -> None:
    with pytest.raises(Untrusted):
        verify(body, SECRET)


def test_a_strangers_own_signature_is_not_enough(identity: Identity) -> None:
    """Anybody can make a key and sign with it; only peers know the run's secret."""
    with pytest.raises(Untrusted, match="admission secret"):
        verify(json.dumps(identity.sign({"rank": 1}, "a guess")).encode(), SECRET)
    record = json.loads(signed(identity, rank=1))
    stranger = Identity.fresh()
    stolen = stranger.sign({**record, "public_key": stranger.public_pem}, "a guess")
    stolen["admission"] = record["admission"]
    with pytest.raises(Untrusted):
        verify(json.dumps(stolen).encode(), SECRET)


def test_a_key_survives_its_database_and_passwords_are_for_one_reader(identity: Identity) -> None:
    again = Identity.from_pem(identity.private_pem)
    assert again.public_pem == identity.public_pem
    for password in ("", "p@ss:word/1", "x" * 100, "ü☃"):
        assert again.decrypt(encrypt(password, identity.public_pem)) == password
    sent = encrypt("secret", identity.public_pem)
    assert sent != encrypt("secret", identity.public_pem)
    assert "secret" not in base64.b64decode(sent).decode(errors="replace")
    for text in (sent[:-8], "", "???", encrypt("secret", Identity.fresh().public_pem)):
        with pytest.raises(Untrusted):
            again.decrypt(text)


def test_passwords_are_exchanged_and_used(pair: Pair) -> None:
    """Neither peer's environment has the other's password; the exchanged one opens the other's database."""
    pair.start_peers()
    pair.meet()
    for rank in range(2):
        peer, other = pair.peer(rank), 1 - rank
        assert peer.trusted().keys() == {other}
        stored = peer.trusted()[other]["password"]
        assert PASSWORDS[other] not in stored
        assert peer.identity.decrypt(stored) == PASSWORDS[other]
        assert peer.check_alive(other)
        marker = peer.database_of(other).command("SET", f"mark{rank}", "here")
        assert marker == "OK"
    with redis.Redis.from_url(pair.urls[1]) as client:
        assert client.get("mark0") == b"here"
    # With another password the database stays shut.
    peer = pair.peer(0)
    record = peer.trusted()[1]
    peer.trust(1, {**record, "password": encrypt("wrong", peer.identity.public_pem)})
    assert not peer.check_alive(1)


def test_requests_of_strangers_are_dropped_and_those_of_peers_are_not(
    pair: Pair, identity: Identity, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.start_peers()
    queue = waiting_queue(pair.plan, rank=0)
    first = pair.queues.consume(queue, 5.0, "other")
    assert first is not None
    body = first.body
    first.ack()
    right = {"kind": "join", "run": pair.plan.run, "rank": 1, "to": 0, "address": "127.0.0.1", "port": 1}
    wrong: list[tuple[bytes, str]] = [
        (b"{", "not JSON"),
        (json.dumps({**json.loads(body), "port": 1}).encode(), "not signed with its key"),
        (json.dumps(identity.sign(right, "guess")).encode(), "admission secret"),
        *((signed(identity, **{**right, **change}), "not meant for this peer") for change in NOT_MEANT),
        (body, ""),
        (body, "peer 1 sent it before"),
        (signed(identity, **right), "peer 1 signed with another key before"),
    ]
    for sent, _ in wrong:
        pair.queues.publish(queue, sent, "other")
    peer = pair.peer(0)
    own = peer.identity
    membership._collect(peer, own, waiting_queue, membership._admit, set())
    assert peer.trusted().keys() == {1}
    told = reasons(capsys)
    expected = [reason for _, reason in wrong if reason]
    assert len(told) == len(expected)
    for reason, part in zip(told, expected, strict=True):
        assert part in reason
    assert peer.trusted()[1]["port"] != 1


def test_an_answer_must_be_to_the_question_that_was_asked(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    pair.start_peers()
    peer, other = pair.peer(0), pair.peer(1).identity
    own, queue = peer.identity, password_queue(pair.plan, rank=0)
    asked = bytes(peer.database.command("HGET", peer.keys.requests, 1)).decode()
    password = encrypt(PASSWORDS[1], own.public_pem)
    right = {"kind": "password", "run": pair.plan.run, "rank": 1, "to": 0, "address": "127.0.0.1", "port": 1}
    answers: list[tuple[dict[str, Any], str]] = [
        ({"for": "another", "password": password}, "was not sent"),
        ({"password": password}, "was not sent"),
        ({"for": asked}, "not encrypted for this peer"),
        ({"for": asked, "password": encrypt(PASSWORDS[1], other.public_pem)}, "not encrypted for this peer"),
        ({"for": asked, "password": password}, ""),
    ]
    for change, _ in answers:
        pair.queues.publish(queue, signed(other, **right, **change), "other")
    membership._collect(peer, own, password_queue, membership._learn, {1})
    assert peer.trusted().keys() == {1}
    told = reasons(capsys)
    for reason, (_, part) in zip(told, answers[:-1], strict=True):
        assert part in reason


def test_who_asks_when_training_has_begun_is_not_admitted(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    pair.start_peers()
    pair.meet()
    one = pair.peer(1)
    late = one.identity.sign(membership._own_record(one, membership.JOIN, 0), SECRET)
    pair.queues.publish(waiting_queue(pair.plan, rank=0), json.dumps(late).encode(), "other")
    with pair.peer(0) as zero:
        zero.mark_failed(1)
    pair.call(membership.auth, 0, epoch=1)
    assert reasons(capsys) == ["peer 1 asks to join too late"]
    assert pair.peer(0).trusted() == {}


def test_a_peer_that_never_asks_is_awaited_until_the_time_is_over(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pair.call(membership.init_peers, 0)["failure"] is None
    monkeypatch.setattr(Context, "left_s", 5.0)
    with pytest.raises(TimeoutError, match=r"received records only from peers \[\]"):
        pair.call(membership.auth, 0)


NOT_MEANT: list[dict[str, Any]] = [
    {"run": "another"},
    {"to": 1},
    {"kind": "password"},
    {"rank": 0},
    {"rank": 2},
    {"rank": -1},
    {"rank": True},
    {"rank": 1.0},
    {"rank": "1"},
    {"rank": None},
]
ED25519 = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
"""

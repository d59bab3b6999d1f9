"""Every operation (`op`) of a trace. Counts, bytes moved and bills are derived from this table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Operation:
    """The meaning of one op.

    `channel` names the channel that makes the request, empty for other ops. `moves` tells whether its bytes go "in" to
    a store or "out" of one; between peers they are sent and received ("both"). `protocol`: architectures' `counts` may
    predict it. `billed` is the line of a bill on which AWS charges a request, empty if it is free; a request counts
    once per `unit_bytes` of its body, if there is such a unit. `beside`: it runs concurrently with a worker, on the
    worker's behalf, and isn't the worker's own time.
    """

    channel: str = ""
    moves: Literal["in", "out", "both", ""] = ""
    protocol: bool = False
    billed: str = ""
    unit_bytes: int = 0
    beside: bool = False


@dataclass(frozen=True)
class Server:
    """The server of a channel on AWS, and the instance type that AWS bills for it; None if AWS bills requests."""

    name: str
    instance_type: str | None = None


# Assumed: the papers don't name instance types.
SERVERS = {
    "object": Server("Amazon S3"),
    "tensor": Server("RedisAI", "m5.large"),
    "queue": Server("Amazon MQ for RabbitMQ", "mq.t3.micro"),
    "memcached": Server("Amazon ElastiCache for Memcached", "cache.t3.medium"),
    "redis": Server("Amazon ElastiCache for Redis", "cache.t3.medium"),
    "dynamodb": Server("Amazon DynamoDB"),
    # LambdaML's paper compares it with a t2.2xlarge, in its Table 2.
    "parameter": Server("Parameter server on Amazon EC2", "c5.4xlarge"),
}
# Channels of objects, which are put, got and deleted by key.
KEYED = ("object", "memcached", "redis", "dynamodb", "parameter")
# documented: DynamoDB developer guide, "DynamoDB on-demand capacity mode": a write request unit covers up to 1 KB, a
# strongly consistent read request unit up to 4 KB; reading a missing item takes one unit, and a deletion counts as a
# write of the item's size.
WRITE_UNIT_BYTES, READ_UNIT_BYTES = 1024, 4096
# documented: Amazon SQS pricing: every 64 KB of a request's payload are a request, and a batch is one payload. Requests
# of functions, and of the event sources that invoke them.
SQS_UNIT_BYTES = 65_536
SQS = {
    "sqs.request": "SQS requests",
    "sqs.fifo": "SQS requests, FIFO queues",
    "sqs.poll": "SQS requests of event sources",
    "sqs.fifo_poll": "SQS requests of event sources, FIFO queues",
}
# Take a worker's CPU time but aren't requests.
WORK = (
    "connect", "build", "restore", "prepare", "compute", "filter", "reduce", "update", "serialise", "deserialise",
    "keys", "validate"
)  # fmt: skip
# Done by the emulator, in none of the traced processes.
EMULATED = ("environment.start", "environment.kill", "host.wait", "host.run")
# A sum of all peers' vectors, which all of them get. Its messages and bytes are the ones that a peer sends.
ALL_REDUCE = "peer.allreduce"
WAYS: Mapping[str, Literal["in", "out", ""]] = {"put": "in", "get": "out", "delete": ""}
OPERATIONS: Mapping[str, Operation] = {
    "object.put": Operation("object", "in", protocol=True, billed="S3 PUT requests"),
    "object.list": Operation("object", "out", protocol=True, billed="S3 LIST requests"),
    "object.get": Operation("object", "out", protocol=True, billed="S3 GET requests"),
    "object.delete": Operation("object", protocol=True, billed="S3 DELETE requests"),
    **{
        f"{channel}.{name}": Operation(channel, moves, protocol=True)
        for channel in ("memcached", "redis", "parameter")
        for name, moves in WAYS.items()
    },
    "parameter.push": Operation("parameter", "in", protocol=True),
    "parameter.pull": Operation("parameter", "out", protocol=True),
    # Done by a parameter server during a worker's push or pull.
    **dict.fromkeys(("parameter.deserialise", "parameter.merge", "parameter.serialise"), Operation(beside=True)),
    "dynamodb.put": Operation(
        "dynamodb", "in", protocol=True, billed="DynamoDB write request units, puts", unit_bytes=WRITE_UNIT_BYTES
    ),
    "dynamodb.get": Operation(
        "dynamodb", "out", protocol=True, billed="DynamoDB read request units", unit_bytes=READ_UNIT_BYTES
    ),
    "dynamodb.delete": Operation(
        "dynamodb", protocol=True, billed="DynamoDB write request units, deletions", unit_bytes=WRITE_UNIT_BYTES
    ),
    "tensor.set": Operation("tensor", "in", protocol=True),
    "tensor.get": Operation("tensor", "out", protocol=True),
    # Its bytes are the reply's.
    "tensor.script": Operation("tensor", "out", protocol=True),
    "tensor.delete": Operation("tensor", protocol=True),
    # Any other command.
    "tensor.command": Operation("tensor"),
    "ping": Operation("tensor"),
    # Messages are counted. They aren't stored, so their bytes don't count as moved to or from a store.
    "queue.publish": Operation("queue", protocol=True),
    "queue.deliver": Operation("queue", protocol=True),
    "queue.declare": Operation("queue"),
    "queue.bind": Operation("queue"),
    "queue.delete": Operation("queue"),
    **{op: Operation("sqs", billed=line, unit_bytes=SQS_UNIT_BYTES) for op, line in SQS.items()},
    ALL_REDUCE: Operation("peer", "both", protocol=True),
    # A state of a state machine, or one attempt at it; it includes the invocation that it waits for.
    "transition": Operation(protocol=True, billed="Step Functions state transitions", beside=True),
    # A script's execution in the database, while the worker waits for the reply.
    "tensor.script.run": Operation(beside=True),
    # A package that a function imported from the host, because its own package and its layer lack it.
    "import": Operation(),
    # Other work of workers. A fault of the run's fault plan, for as long as it delays a worker.
    **dict.fromkeys((*WORK, "wait", "execute", "invoke", "fault"), Operation()),
    **dict.fromkeys(EMULATED, Operation()),
}
PROTOCOL = tuple(op for op, meaning in OPERATIONS.items() if meaning.protocol)
MOVES = {op: meaning.moves for op, meaning in OPERATIONS.items() if meaning.moves}
BESIDE = tuple(op for op, meaning in OPERATIONS.items() if meaning.beside)
# Requests that AWS charges one by one, with their line of the bill.
BILLED = {op: meaning.billed for op, meaning in OPERATIONS.items() if meaning.channel and meaning.billed}


def moves(op: str, way: Literal["in", "out"]) -> bool:
    """Return whether an operation sends bytes to a store or peer, or receives them."""
    return MOVES.get(op) in (way, "both")


def billed_requests(op: str, requests: int, size: int) -> int:
    """Return how many requests AWS charges for `requests` of an operation that move `size` bytes together."""
    unit = OPERATIONS[op].unit_bytes
    if not unit or not requests:
        return requests
    # An item's names and key are left out: they take about 100 bytes, and matter only if a body nearly fills its unit.
    return requests * max(1, -(-size // (requests * unit)))

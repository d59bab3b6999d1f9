"""DynamoDB as a store of objects: a table with one item per object."""

import functools
from typing import Any

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.channels.objects import aws_client
from slslab_workers.trace.operations import SERVERS

# documented: DynamoDB developer guide, "Quotas in Amazon DynamoDB": 400 KB an item, names of attributes included.
ITEM_BYTES = 400 * 1024
# An upper limit for an item's bytes without its body: three attributes' names, the key, and the metadata.
BESIDE_BYTES = 512
# How many keys a worker remembers the sizes of.
KNOWN = 4096


@functools.cache
def environment_client() -> Any:
    """Return the environment's DynamoDB client, without boto3's own retries, which couldn't be counted."""
    return aws_client("dynamodb", retries={"total_max_attempts": 1}, read_timeout=60)


class DynamoDB(KeyedChannel):
    """One table, as one worker uses it. Reads are strongly consistent, so every put is visible at once.

    A deletion is billed by the size of the deleted item, which is its event's `bytes`: workers delete what they have
    put or got.
    """

    name = "dynamodb"
    server = SERVERS[name]

    def __init__(self, client: Any, table: str, tracer: Tracer) -> None:
        super().__init__(tracer)
        self._client = client
        self._table = table
        self._sizes: dict[str, int] = {}

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        item = {"key": {"S": key}, "metadata": {"B": metadata}, "body": {"B": bytes(body)}}
        self._client.put_item(TableName=self._table, Item=item)
        self._know(key, body.nbytes)

    def fetch(self, key: str) -> tuple[bytes, bytearray] | None:
        item = self._client.get_item(TableName=self._table, Key={"key": {"S": key}}, ConsistentRead=True).get("Item")
        if item is None:
            return None
        body = bytearray(item["body"]["B"])
        self._know(key, len(body))
        return item["metadata"]["B"], body

    def remove(self, key: str) -> int:
        self._client.delete_item(TableName=self._table, Key={"key": {"S": key}})
        return self._sizes.pop(key, 0)

    def _know(self, key: str, size: int) -> None:
        self._sizes[key] = size
        if len(self._sizes) > KNOWN:
            del self._sizes[next(iter(self._sizes))]


def create_table(client: Any, table: str) -> None:
    """Create a table for objects, billed by request, and wait until it exists."""
    client.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 60})

"""Store one peer's keys: their values, expiry and memory, and the clients that wait for a list.

Strings are `bytes` or, if large, a `memoryview` that is never written to; lists are deques, hashes dicts, sets sets.
Tensors and scripts are immutable. Memory is the sum of the values' bytes and ENTRY_BYTES for every key and element.
"""

import heapq
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast

from slslab.tensordb.replies import WRONGTYPE, CommandError, Reply

if TYPE_CHECKING:  # they need numpy; nothing else here does
    from slslab.tensordb.scripts import Script
    from slslab.tensordb.tensors import Tensor

# Roughly the memory that CPython needs to hold an empty bytes object in a container.
ENTRY_BYTES = 64
OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
STRING = (bytes, memoryview)
# `ai` adds its own.
TYPE_NAMES: dict[type, str] = {
    bytes: "string",
    memoryview: "string",
    deque: "list",
    dict: "hash",
    set: "set",
}

Value: TypeAlias = "bytes | memoryview | deque[bytes] | dict[bytes, bytes] | set[bytes] | Tensor | Script"
V = TypeVar("V", deque[bytes], dict[bytes, bytes], set[bytes])


class PeerClosed(Exception):
    """The peer has been shut down."""


@dataclass(slots=True, eq=False)
class Entry:
    """A key's value; `expires` is in milliseconds since the epoch, or None for never."""

    value: Value
    size: int
    expires: int | None


@dataclass(eq=False)
class Waiter:
    """A client that waits for one of several lists.

    `take` tries to take from a key, under the store's lock, and returns None if it is empty. `alive` returns whether
    the client is still connected, so that no element goes to a client that has left. `wake` ends its wait, which lasts
    at most `timeout_s` (0: forever).
    """

    keys: list[bytes]
    take: Callable[[bytes], Reply]
    timeout_s: float
    alive: Callable[[], bool] = lambda: False
    wake: Callable[[], None] = lambda: None
    served: bool = False
    reply: Reply = None


class Store:
    """One keyspace. As a context manager it is locked; every method except `closed` needs that.

    `maxmemory` is in bytes, 0 for no limit.
    """

    def __init__(self, maxmemory: int = 0) -> None:
        self.maxmemory = maxmemory
        # Redis's id of a server's run, by which clients recognise a server behind several addresses.
        self.id = secrets.token_hex(20)
        self.table: dict[bytes, Entry] = {}
        self.used = 0
        self.peak = 0
        self.reserved = 0
        self.blocked = 0
        self.closed = False
        # RedisAI runs the scripts of a device one after another.
        self.script_turn = threading.Lock()
        self.lock = threading.RLock()
        self._depth = 0
        self._deadlines: list[tuple[int, bytes]] = []
        self._waiting: dict[bytes, deque[Waiter]] = {}
        self._ready: deque[bytes] = deque()

    def __enter__(self) -> Self:
        self.lock.acquire()
        if self.closed:
            self.lock.release()
            raise PeerClosed
        self._depth += 1
        if self._depth == 1 and self._deadlines:
            self._expire()
        return self

    def __exit__(self, *_error: object) -> None:
        # Like Redis: waiting clients are served after the command or transaction that filled the list.
        try:
            if self._depth == 1:
                self._serve()
        finally:
            self._depth -= 1
            self.lock.release()

    def close(self) -> None:
        """Free everything; from now on, entering the store raises PeerClosed."""
        with self.lock:
            self.closed = True
            self.clear()
            self._waiting.clear()

    # Values

    def entry(self, key: bytes, kind: type | tuple[type, ...]) -> Entry | None:
        """Return a key's entry, or None; CommandError if it has another type."""
        entry = self.table.get(key)
        if entry is not None and not isinstance(entry.value, kind):
            raise CommandError(WRONGTYPE)
        return entry

    def value(self, key: bytes, kind: type | tuple[type, ...]) -> Any:
        """Return a key's value, or None; CommandError if it has another type."""
        entry = self.entry(key, kind)
        return None if entry is None else entry.value

    def elements(self, key: bytes, kind: type[V]) -> V:
        """Return a key's list, hash or set, or an empty one, which isn't stored, if the key doesn't exist."""
        value: V | None = self.value(key, kind)
        return kind() if value is None else value

    def put(self, key: bytes, value: Value, size: int, expires: int | None = None) -> None:
        """Set a key to a value of `size` bytes; CommandError if memory is full."""
        size += len(key) + ENTRY_BYTES
        self.require(size)
        self.drop(key)
        self.table[key] = Entry(value, size, expires)
        self._account(size)
        if expires is not None:
            self.expire(key, expires)
        if isinstance(value, deque):
            self.signal(key)

    def collection(self, key: bytes, kind: type[V]) -> V:
        """Return a key's list, hash or set, creating it if needed; `settle` must follow."""
        if self.entry(key, kind) is None:
            self.put(key, kind(), 0)
        return cast(V, self.table[key].value)

    def settle(self, key: bytes, change: int) -> None:
        """Account for a stored collection that grew or shrank by `change` bytes; remove it if it is empty."""
        entry = self.table[key]
        entry.size += change
        self._account(change)
        if not entry.value:
            self.drop(key)

    def drop(self, key: bytes) -> bool:
        """Remove a key; return whether it existed."""
        entry = self.table.pop(key, None)
        if entry is not None:
            self.used -= entry.size
        return entry is not None

    def clear(self) -> None:
        """Remove all keys."""
        self.table.clear()
        self._deadlines.clear()
        self.used = 0

    # Memory

    def require(self, size: int) -> None:
        """Raise CommandError if `size` more bytes would exceed the limit."""
        if self.maxmemory and self.used + self.reserved + size > self.maxmemory:
            raise CommandError(OUT_OF_MEMORY)

    def reserve(self, size: int) -> None:
        """Reserve bytes for an argument that is being received, or release them (negative); CommandError if full."""
        if size > 0:
            self.require(size)
        self.reserved += size

    def _account(self, change: int) -> None:
        self.used += change
        self.peak = max(self.peak, self.used)

    # Expiry

    def expire(self, key: bytes, when: int) -> None:
        """Have a key removed at a time in milliseconds since the epoch."""
        self.table[key].expires = when
        heapq.heappush(self._deadlines, (when, key))
        if len(self._deadlines) > 2 * len(self.table) + 1024:
            # Each change of a key's expiry leaves its old deadline behind.
            self._deadlines = [(entry.expires, key) for key, entry in self.table.items() if entry.expires is not None]
            heapq.heapify(self._deadlines)

    def _expire(self) -> None:
        now = milliseconds()
        while self._deadlines and self._deadlines[0][0] <= now:
            when, key = heapq.heappop(self._deadlines)
            entry = self.table.get(key)
            if entry is not None and entry.expires == when:
                self.drop(key)

    # Waiting clients

    def wait(self, waiter: Waiter) -> None:
        """Add a client to the queues of its keys; clients are served in order of arrival."""
        self.blocked += 1
        for key in waiter.keys:
            self._waiting.setdefault(key, deque()).append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Remove a client from the queues of its keys."""
        self.blocked -= 1
        for key in set(waiter.keys):
            queue = self._waiting[key]
            while waiter in queue:
                queue.remove(waiter)
            if not queue:
                del self._waiting[key]

    def signal(self, key: bytes) -> None:
        """Record that a list has an element, for the clients that wait for it."""
        if key in self._waiting:
            self._ready.append(key)

    def _serve(self) -> None:
        while self._ready:
            key = self._ready.popleft()
            for waiter in list(self._waiting.get(key, ())):
                if not isinstance(getattr(self.table.get(key), "value", None), deque):
                    break
                if not waiter.alive():
                    continue
                try:
                    reply = waiter.take(key)
                except CommandError as error:
                    reply = error
                self.leave(waiter)
                waiter.served, waiter.reply = True, reply
                waiter.wake()


def milliseconds() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000

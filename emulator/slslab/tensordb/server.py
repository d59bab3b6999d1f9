"""Serve peers: each has a listening socket, a keyspace, and a thread per connection."""

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from slslab.installation import installed

# Imported because they register their commands in the table.
from slslab.tensordb import connections, generic, hashes, lists, lua_commands, strings  # noqa: F401
from slslab.tensordb.executions import Report
from slslab.tensordb.lua_engine import Engine
from slslab.tensordb.replies import NULL_ARRAY, CommandError, Encoder, Reply
from slslab.tensordb.resp import ProtocolError, Reader, Request
from slslab.tensordb.session import Context, Session, admit, execute, release
from slslab.tensordb.store import PeerClosed, Store, Waiter

if installed("torch"):
    from slslab.tensordb import ai  # noqa: F401

BACKLOG = 512
# The most buffers passed to the kernel at once, which accepts 1024.
VECTOR = 64
# Replies to pipelined requests are collected up to this number of buffers.
COLLECT = 64
BREATH_S = 0.02
# The longest timeout that poll accepts: 24 days.
LONGEST_WAIT_MS = (1 << 31) - 1


@dataclass(frozen=True)
class Options:
    """Options of all peers; `maxmemory` is each peer's limit, bytes (0: no limit)."""

    host: str = "127.0.0.1"
    password: bytes | None = None
    maxmemory: int = 0


class Peer:
    """One database. `close` or a client's SHUTDOWN closes it; then `ended` is called."""

    def __init__(
        self,
        number: int,
        port: int,
        options: Options,
        report: Report,
        ended: Callable[[], object],
    ) -> None:
        self._ended = ended
        self._listener = socket.create_server((options.host, port), backlog=BACKLOG)
        self._lock = threading.Condition()  # notified when a connection has ended
        self.closed = False
        self._numbers = count(1)
        self.port: int = self._listener.getsockname()[1]
        self.context = Context(
            Store(options.maxmemory),
            number,
            options.password,
            Engine(),
            report,
            {},
            self.close,
        )

    def start(self) -> None:
        """Accept connections from now on."""
        threading.Thread(target=self._accept, name=f"peer-{self.context.peer}", daemon=True).start()

    def close(self) -> None:
        """Close the connections and free the memory; the port is free when this returns."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            # The accepting thread may be inside accept, which only a shutdown ends.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for session in self.context.clients.values():
                with suppress(OSError):  # the client has disconnected
                    session.socket.shutdown(socket.SHUT_RDWR)
        self.context.lua.end()
        self.context.store.close()
        self._ended()

    def left(self, limit_s: float) -> bool:
        """Wait until every connection has ended; False if one still runs a script at the limit."""
        with self._lock:
            return self._lock.wait_for(lambda: not self.context.clients, limit_s)

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                if self.closed:
                    return
                time.sleep(BREATH_S)  # no free descriptor until a client leaves
                continue
            session = Session(self.context, next(self._numbers), connection, f"{address[0]}:{address[1]}")
            with self._lock:
                if self.closed:
                    connection.close()
                    return
                self.context.clients[session.id] = session
            name = f"peer-{self.context.peer}-{session.id}"
            try:
                threading.Thread(target=self._serve, args=(session,), name=name, daemon=True).start()
            except RuntimeError:  # no thread can be started, so disconnect this client
                self._forget(session)

    def _serve(self, session: Session) -> None:
        try:
            Connection(session).serve()
        finally:
            self._forget(session)

    def _forget(self, session: Session) -> None:
        with self._lock:
            del self.context.clients[session.id]
            session.socket.close()
            self._lock.notify_all()


class Connection:
    """Reads requests and writes replies, in order, until either side ends the connection."""

    def __init__(self, session: Session) -> None:
        session.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = session.socket
        self._session = session
        self._encoder = Encoder()
        self._reader = Reader(session.socket, self._flush, lambda *request: admit(session, *request))

    def serve(self) -> None:
        """Serve until the connection ends."""
        try:
            with suppress(EOFError, OSError, PeerClosed):
                self._serve()
        finally:
            # The session refers to this connection, so its buffers would stay until the next garbage collection.
            del self._reader

    def _serve(self) -> None:
        try:
            while not self._session.leaving:
                self._turn()
            self._flush()
        except (ProtocolError, MemoryError) as error:
            self._encoder.add(CommandError(str(error) or "OOM the host has no memory for this"))
            self._flush()
            # Closing with unread input would reset the connection, and the client would lose the reply.
            self._socket.shutdown(socket.SHUT_WR)

    def _turn(self) -> None:
        session = self._session
        self._reader.trusted = session.authenticated
        request = Request()
        try:
            self._reader.request(request)
        except BaseException:
            release(session.store, request)
            raise
        answer = execute(session, request)
        self._encoder.protocol = session.protocol
        self._encoder.add(self._wait(answer) if isinstance(answer, Waiter) else answer)
        if len(self._encoder.parts) >= COLLECT:
            self._flush()

    def _wait(self, waiter: Waiter) -> Reply:
        """Wait until the client is served, times out or disconnects, without polling."""
        store = self._session.store
        disconnected = select.poll()
        disconnected.register(self._socket, select.POLLRDHUP)
        bell = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            self._flush()
            both = select.poll()
            both.register(self._socket, select.POLLRDHUP)
            both.register(bell, select.POLLIN)
            with store:
                waiter.alive = lambda: not disconnected.poll(0)
                waiter.wake = lambda: os.eventfd_write(bell, 1)
                # An element pushed meanwhile wasn't given to this client, as it wasn't alive.
                for key in waiter.keys:
                    store.signal(key)
            both.poll(min(waiter.timeout_s * 1000, LONGEST_WAIT_MS) if waiter.timeout_s else None)
        finally:
            try:
                with store:
                    if not waiter.served:
                        store.leave(waiter)
            finally:
                os.close(bell)
        return waiter.reply if waiter.served else NULL_ARRAY

    def _flush(self) -> None:
        """Send all replies, and buffer the client's input meanwhile: it may read only after it has sent everything."""
        parts = [memoryview(part) for part in self._encoder.take()]
        poll = select.poll()
        events = select.POLLIN | select.POLLOUT
        while parts:
            try:
                sent = self._socket.sendmsg(parts[:VECTOR], [], socket.MSG_DONTWAIT)
            except BlockingIOError:
                poll.register(self._socket, events)
                happened = poll.poll()[0][1]
                if happened & select.POLLIN and not happened & select.POLLOUT and not self._reader.spill():
                    events = select.POLLOUT
                continue
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if sent:
                parts[0] = parts[0][sent:]

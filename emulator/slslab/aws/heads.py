"""Limit what uvicorn doesn't: the size of a request's head, and how many requests a connection may queue.

uvicorn copies a long head with every piece that arrives, and reads on with each answer, however many requests wait.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# AWS's clients send heads of a few kilobytes; one piece of data has up to 256, possibly of an earlier body.
LARGEST_HEAD = 512 * 1024
# assumed: AWS's clients wait for each answer before their next request.
MOST_WAITING = 100


class BoundedHeads(HttpToolsProtocol):
    """Answers 400 if a head or the number of waiting requests exceeds the limits, and closes the connection."""

    _in_head = False
    _size = 0

    def on_message_begin(self) -> None:
        """Start counting. If too many requests wait, raise ValueError: the parser reports an invalid request."""
        if len(self.pipeline) >= MOST_WAITING:
            raise ValueError("too many requests wait for an answer")
        super().on_message_begin()
        self._in_head, self._size = True, 0

    def on_headers_complete(self) -> None:
        """Stop counting: the gate limits the body."""
        super().on_headers_complete()
        self._in_head = False

    def data_received(self, data: bytes) -> None:
        """Receive the next piece of a request."""
        super().data_received(data)
        self._size += len(data)
        if self._in_head and self._size > LARGEST_HEAD:
            self.send_400_response("The head of the request is too large.")

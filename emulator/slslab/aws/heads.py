"""Bounds of a connection that uvicorn lacks: on a request's head, and on requests that come before earlier answers.

uvicorn copies a long header with every piece that comes, and reads on with each answer, however many requests wait.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# The heads of AWS's clients have a few kilobytes; a piece that comes has up to 256, of a body before it, too.
LARGEST_HEAD = 512 * 1024
# assumed: AWS's clients wait for each answer before they ask again.
MOST_WAITING = 100


class BoundedHeads(HttpToolsProtocol):
    """Answers 400 to a head or to requests beyond the limits, and closes the connection."""

    _in_head = False
    _size = 0

    def on_message_begin(self) -> None:
        """Begin to count; ValueError, which the parser takes for an invalid request, if too many wait for an answer."""
        if len(self.pipeline) >= MOST_WAITING:
            raise ValueError("too many requests wait for an answer")
        super().on_message_begin()
        self._in_head, self._size = True, 0

    def on_headers_complete(self) -> None:
        """Count no further: the gate bounds the body."""
        super().on_headers_complete()
        self._in_head = False

    def data_received(self, data: bytes) -> None:
        """Take the next piece of a request."""
        super().data_received(data)
        self._size += len(data)
        if self._in_head and self._size > LARGEST_HEAD:
            self.send_400_response("The head of the request is too large.")

"""The bound on a request's head: uvicorn's parser has none, and copies a long header with every piece that comes."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# The heads of AWS's clients have a few kilobytes; a piece that comes has up to 256, of a body before it, too.
LARGEST_HEAD = 512 * 1024


class BoundedHeads(HttpToolsProtocol):
    """Answers 400 to a head that goes beyond the limit, and closes the connection."""

    _in_head = False
    _size = 0

    def on_message_begin(self) -> None:
        """Begin to count."""
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

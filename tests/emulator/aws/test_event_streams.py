"""Messages of event streams, read by botocore."""

from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer

from slslab.lambda_.invocation import event_message


@pytest.mark.parametrize("payload", [b"", b"{}", bytes(range(256)) * 1000])
def test_a_message_is_read_as_it_was_written(payload: bytes) -> None:
    buffer: Any = EventStreamBuffer()
    buffer.add_data(event_message("PayloadChunk", "application/octet-stream", payload) * 2)
    read = [(message.headers, message.payload) for message in buffer]
    headers = {
        ":message-type": "event",
        ":event-type": "PayloadChunk",
        ":content-type": "application/octet-stream",
    }
    assert read == [(headers, payload)] * 2

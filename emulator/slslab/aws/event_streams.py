"""Encode messages of AWS's binary event streams.

https://smithy.io/2.0/aws/amazon-eventstream.html
"""

import struct
import zlib
from collections.abc import Mapping

MEDIA_TYPE = "application/vnd.amazon.eventstream"
STRING = 7


def event_message(event: str, content_type: str, payload: bytes) -> bytes:
    """Return one event: its headers, its payload, and two checksums, of its lengths and of everything."""
    headers = _headers({":message-type": "event", ":event-type": event, ":content-type": content_type})
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = lengths + struct.pack("!I", zlib.crc32(lengths)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


def _headers(values: Mapping[str, str]) -> bytes:
    parts = []
    for name, value in values.items():
        parts.append(struct.pack("!B", len(name)) + name.encode())
        parts.append(struct.pack("!BH", STRING, len(value)) + value.encode())
    return b"".join(parts)

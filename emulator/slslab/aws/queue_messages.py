"""The size of SQS's messages, by which AWS bills requests.

documented: SQS developer guide, "Amazon SQS message metadata": the name, type and value of each attribute count, and
system attributes don't.
"""

from collections.abc import Mapping
from typing import Any


def payload_bytes(document: Any) -> int:
    """Return the bytes of all messages in a request or an answer of SQS's JSON protocol; 0 for a malformed one."""
    try:
        return sum(map(message_bytes, document.get("Entries") or document.get("Messages") or [document]))
    except (AttributeError, TypeError):
        return 0


def message_bytes(message: Mapping[str, Any]) -> int:
    """Return the bytes of a sent or received message: its body, and its attributes' names, types and values."""
    attributes = message.get("MessageAttributes") or {}
    texts = [message.get("Body") or message.get("MessageBody") or "", *attributes]
    texts += [given.get(part) or "" for given in attributes.values() for part in ("DataType", "StringValue")]
    # Base64, four characters for three bytes.
    binary = sum(len((given.get("BinaryValue") or "").rstrip("=")) * 3 // 4 for given in attributes.values())
    # SQS refuses a lone surrogate, after its request was measured.
    return binary + sum(len(text.encode(errors="surrogatepass")) for text in texts)

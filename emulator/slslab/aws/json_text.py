"""Parse JSON without Python's extensions. Apart from the standard library it imports nothing, so it loads quickly."""

import json
from typing import Any


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON, bytes as UTF-8; ValueError for other text, also NaN; RecursionError if it is nested too deeply."""
    return DECODER.decode(text if isinstance(text, str) else text.decode())

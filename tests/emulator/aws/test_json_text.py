"""Text that is JSON, and text that isn't."""

import pytest

from slslab.aws.json_text import parse_json


def test_json_is_read() -> None:
    text = ' {"a": [1, 2.5, null, "é"]} '
    assert parse_json(text) == parse_json(text.encode()) == {"a": [1, 2.5, None, "é"]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("not json", r"^Expecting value: line 1 column 1 \(char 0\)$"),
        (b"\x99", "can't decode byte 0x99"),
        ("[NaN]", "^NaN is not JSON$"),
        ("-Infinity", "^-Infinity is not JSON$"),
        ("9" * 100_000, "digits"),
    ],
)
def test_other_text_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text)

"""What is not JSON, in the words of AWS's parser."""

import json

import pytest

from slslab.aws import jackson
from slslab.aws.jackson import JacksonError, parse

VALUES = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
DEPTH = "Document nesting depth exceeds the maximum allowed"
FIELD = "was expecting double-quote to start field name"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("not a definition", f"Unrecognized token 'not': was expecting {VALUES}", "line: 1, column: 4"),
        ("{'a': 1}", f"Unexpected character (''' (code 39)): {FIELD}", "line: 1, column: 3"),
        ("[1,]", f"Unexpected character (']' (code 93)): expected a valid value {VALUES}", "line: 1, column: 5"),
        ('{"a":1,}', f"Unexpected character ('}}' (code 125)): {FIELD}", "line: 1, column: 9"),
        (
            '{"a" 1}',
            "Unexpected character ('1' (code 49)): was expecting a colon to separate field name and value",
            "line: 1, column: 7",
        ),
        (
            "[1 2]",
            "Unexpected character ('2' (code 50)): was expecting comma to separate Array entries",
            "line: 1, column: 5",
        ),
        (
            '{"a": 1 "b"}',
            "Unexpected character ('\"' (code 34)): was expecting comma to separate Object entries",
            "line: 1, column: 10",
        ),
        ('{"a":\ntru}', f"Unrecognized token 'tru': was expecting {VALUES}", "line: 2, column: 4"),
        ("[*]", f"Unexpected character ('*' (code 42)): expected a valid value {VALUES}", "line: 1, column: 3"),
        ('"x', "Unexpected end-of-input: was expecting closing quote for a string value", "line: 1, column: 3"),
        (
            '{"a":"\t"}',
            "Illegal unquoted character ((CTRL-CHAR, code 9)): has to be escaped using backslash to be included in "
            "string value",
            "line: 1, column: 8",
        ),
        ('"\\q"', "Unrecognized character escape 'q' (code 113)", "line: 1, column: 4"),
        (
            '{"a":[',
            "Unexpected end-of-input: expected close marker for Array (start marker at [Source: (String)"
            '"{"a":["; line: 1, column: 7])',
            "line: 1, column: 7",
        ),
        (
            "[NaN]",
            "Non-standard token 'NaN': enable JsonParser.Feature.ALLOW_NON_NUMERIC_NUMBERS to allow",
            "line: 1, column: 5",
        ),
        ("", "No content to map due to end-of-input", "line: 1, column: 1"),
        ("[" * 100_000, DEPTH, "[truncated 99500 chars]; line: 1, column: 1"),
    ],
)
def test_s11_messages_and_places(text: str, message: str, place: str) -> None:
    with pytest.raises(JacksonError) as raised:
        parse(text)
    assert str(raised.value) == message
    assert raised.value.location.startswith("[Source: (String)")
    assert raised.value.location.endswith(f"{place}]")


def test_s11_pythons_of_any_version_lead_to_the_same_message() -> None:
    newer = jackson._in_jacksons_words(json.JSONDecodeError("Illegal trailing comma before end of array", "[1,]", 2))
    with pytest.raises(JacksonError) as raised:
        parse("[1,]")
    assert (str(newer), newer.location) == (str(raised.value), raised.value.location)


def test_s11_a_message_that_names_no_container_looks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jackson, "_container", lambda _text: pytest.fail("the whole text was searched"))
    with pytest.raises(JacksonError, match="Unrecognized token 'x'"):
        parse("[[],[],x]")


def test_json_is_read() -> None:
    assert parse(' {"a": [1, 2.5, null, "é"]} ') == {"a": [1, 2.5, None, "é"]}


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(JacksonError, match="Number value length exceeds the maximum allowed"):
        parse("[" + "9" * 100_000 + "]")
    assert jackson.explain(b"9" * 100_000).startswith("Number value length exceeds the maximum allowed\n at [Source")

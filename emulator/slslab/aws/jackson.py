"""Parse JSON like AWS, with the messages of AWS's parser (Jackson) for invalid text.

The messages are Jackson's own (https://github.com/FasterXML/jackson-core). Which ones AWS shows is measured for an
unknown token and for an unquoted field name, and assumed for the others.
"""

import json
import re
from typing import Any

VALUES = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
TOKEN = re.compile(r"[\w$]+")
SHOWN = 500
LOCATION = re.compile(r"\[Source: .*; line: (\d+), column: (\d+)\]", re.DOTALL)
# Python's messages of what it expected at a position, with Jackson's.
EXPECTED = {
    "Expecting property name enclosed in double quotes": "was expecting double-quote to start field name",
    "Illegal trailing comma before end of object": "was expecting double-quote to start field name",
    "Expecting ':' delimiter": "was expecting a colon to separate field name and value",
}


class JacksonError(ValueError):
    """A text isn't JSON. `location` is where Jackson stopped reading."""

    def __init__(self, message: str, text: str, end: int) -> None:
        super().__init__(message)
        shown = text if len(text) <= SHOWN else f'{text[:SHOWN]}"[truncated {len(text) - SHOWN} chars]'
        line, column = text.count("\n", 0, end) + 1, end - text.rfind("\n", 0, end)
        closing = "" if len(text) > SHOWN else '"'
        self.location = f'[Source: (String)"{shown}{closing}; line: {line}, column: {column}]'


class _Constant(Exception):
    """A number that JSON lacks."""


def _refuse_constant(name: str) -> Any:
    raise _Constant(name)


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse(text: str) -> Any:
    """Parse JSON; JacksonError for invalid text."""
    try:
        return DECODER.decode(text)
    except _Constant as error:
        message = f"Non-standard token '{error}': enable JsonParser.Feature.ALLOW_NON_NUMERIC_NUMBERS to allow"
        raise JacksonError(message, text, text.index(str(error)) + len(str(error))) from None
    except RecursionError:
        raise JacksonError("Document nesting depth exceeds the maximum allowed", text, 0) from None
    except json.JSONDecodeError as error:
        raise _in_jacksons_words(error) from None
    except ValueError:  # Python's limit of digits in an integer
        raise JacksonError("Number value length exceeds the maximum allowed", text, 0) from None


def explain(body: bytes) -> str:
    """Return Lambda's message about an invalid body: its Jackson is newer and shows nothing of the text.

    measured: a body that isn't UTF-8, an unexpected character, and an unclosed object.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        code = body[error.start]
        if error.start == 0:
            what = f"Unexpected character ((CTRL-CHAR, code {code})): expected a valid value {VALUES}"
            return f"{what}\n at {_redacted(1, 1)}"
        line = body.count(b"\n", 0, error.start) + 1
        column = error.start - body.rfind(b"\n", 0, error.start) + 1
        return f"Invalid UTF-8 start byte 0x{code:02x}\n at {_redacted(line, column)}"
    try:
        parse(text)
    except JacksonError as error:
        earlier = str(error).startswith("Unexpected character")
        message = LOCATION.sub(lambda found: _redacted(int(found[1]), int(found[2]) - 1), str(error))
        [(line_text, column_text)] = LOCATION.findall(error.location)
        return f"{message}\n at {_redacted(int(line_text), int(column_text) - earlier)}"
    raise ValueError("it is JSON")


def _redacted(line: int, column: int) -> str:
    source = "REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)"
    return f"[Source: {source}; line: {line}, column: {column}]"


def _in_jacksons_words(error: json.JSONDecodeError) -> JacksonError:
    text, position = error.doc, error.pos
    if error.msg.startswith("Illegal trailing comma"):
        position = text.index("}" if error.msg.endswith("object") else "]", position)  # Python names the comma
    if error.msg.startswith("Unterminated string"):
        return JacksonError("Unexpected end-of-input: was expecting closing quote for a string value", text, len(text))
    if error.msg.startswith("Invalid control character"):
        what = f"Illegal unquoted character ((CTRL-CHAR, code {ord(text[position])}))"
        return JacksonError(
            f"{what}: has to be escaped using backslash to be included in string value", text, position + 1
        )
    if error.msg.startswith("Invalid \\"):
        character = text[min(position + 1, len(text) - 1)]
        return JacksonError(f"Unrecognized character escape '{character}' (code {ord(character)})", text, position + 2)
    if position >= len(text):
        container = _container(text)
        if container is None:
            return JacksonError("No content to map due to end-of-input", text, position)
        kind, start = container
        marker = JacksonError("", text, start + 1).location
        return JacksonError(
            f"Unexpected end-of-input: expected close marker for {kind} (start marker at {marker})", text, position
        )
    token = TOKEN.match(text, position)
    if token and not token[0][0].isdigit() and error.msg in ("Expecting value", "Extra data"):
        return JacksonError(f"Unrecognized token '{token[0]}': was expecting {VALUES}", text, token.end())
    expected = EXPECTED.get(error.msg)
    if error.msg == "Expecting ',' delimiter" and (container := _container(text[:position])):
        expected = f"was expecting comma to separate {container[0]} entries"
    character, expected = text[position], expected or f"expected a valid value {VALUES}"
    return JacksonError(f"Unexpected character ('{character}' (code {ord(character)})): {expected}", text, position + 1)


def _container(text: str) -> tuple[str, int] | None:
    """Return the kind and start of the innermost object or array that is still open at the end of a text."""
    opened: list[tuple[str, int]] = []
    for part in re.finditer(r'"(?:\\.|[^"\\])*"|[\[\]{}]', text):
        if part[0] in "{[":
            opened.append(("Object" if part[0] == "{" else "Array", part.start()))
        elif part[0] in "}]" and opened:
            opened.pop()
    return opened[-1] if opened else None

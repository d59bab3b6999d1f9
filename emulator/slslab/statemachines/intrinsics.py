"""Evaluate the intrinsic functions of JSONPath states, as AWS documents them.

documented: https://docs.aws.amazon.com/step-functions/latest/dg/intrinsic-functions.html and Appendix B of
https://states-language.net: the functions, their bounds and the escapes. measured, in others' recordings: the message
around a failure and the one for a path that finds nothing; Format's arrays and objects; fractions are rounded half up;
StringToJson of white space is null. The other messages are assumed.
"""

import base64
import binascii
import hashlib
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from slslab.aws.errors import as_java
from slslab.aws.json_text import parse_json
from slslab.statemachines.expressions import ALGORITHMS, seeded_random
from slslab.statemachines.filters import compact, same
from slslab.statemachines.paths import ARGUMENT_NAME, ROOT, NoSuchPath, PathBound, PathError, Reader

# documented: "You can nest up to 10 intrinsic functions within a field"; its example counts every function.
MOST_CALLS = 10
MOST_ITEMS = 1_000
MOST_CHARACTERS = 10_000
# assumed: the total size of a call's arguments, as JSON. AWS documents no bound.
MOST_ARGUMENTS = 1_000_000
LEAST_INTEGER, MOST_INTEGER = -(2**31), 2**31 - 1
NAME = re.compile(r"States\.([A-Za-z0-9_.]+)\(")
STRING = re.compile(r"'((?:\\.|[^'\\])*)'", re.DOTALL)
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
WORD = re.compile(r"(?:null|true|false)(?!\w)")
# The types of an argument, and their name in messages.
KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "array": (list, "an array"),
    "integer": ((int, float), "an integer"),
    "object": (dict, "a JSON object"),
    "string": (str, "a string"),
}
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# The parts of a template: an escape, `{}` for a value, a stray brace.
PARTS = re.compile(r"\\([\\'{}])|(\{\})|([{}])")
DATA_PARTS = re.compile(r"\\([{}])|(\{\})|([{}])")


class IntrinsicError(Exception):
    """A call failed; its text follows `The function '…' had the following error: `."""


@dataclass(frozen=True)
class PathArgument:
    """A path as an argument, as a field writes it."""

    written: str


@dataclass(frozen=True)
class Call:
    """A call of the function `States.<name>`. A text among its arguments has its escapes as written."""

    name: str
    arguments: tuple[Any, ...]


def _unescaped(match: re.Match[str]) -> str:
    if match[1] not in "\\'{}":
        raise IntrinsicError(f"The escape '\\{match[1]}' is open: only \\', \\{{, \\}} and \\\\ are escapes")
    return match[1]


def parse(text: str) -> Call:
    """Parse a call; PathError for any other text."""
    reader = _Reader(text)
    call = reader.call()
    if reader.position < len(text):
        raise PathError(f"Unexpected text after the call at position {reader.position}")
    return call


class _Reader(Reader):
    """Reads a call."""

    def __init__(self, text: str) -> None:
        super().__init__(text, ARGUMENT_NAME)
        self._calls = 0

    def call(self) -> Call:
        """Read a call at this position."""
        if not (name := self._match(NAME)) or name[1] not in FUNCTIONS:
            raise PathError(f"Expected an intrinsic function at position {self.position}")
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise PathError(f"A field can have at most {MOST_CALLS} intrinsic functions")
        arguments: list[Any] = []
        if not self._next(")"):
            arguments += self._listed(self._argument)
            if not self._take(")"):
                raise PathError(f"Expected ',' or ')' at position {self.position}")
        try:
            signature(FUNCTIONS[name[1]][1]).bind(*arguments)
        except TypeError as error:
            raise PathError(f"States.{name[1]} can't have {len(arguments)} arguments") from error
        return Call(name[1], tuple(arguments))

    def _argument(self) -> Any:
        if text := self._match(STRING):
            return text[1]
        if number := self._match(NUMBER):
            return json.loads(number[0])
        if word := self._match(WORD):
            return json.loads(word[0])
        return self._path() if self.text.startswith("$", self.position) else self.call()

    def _path(self) -> PathArgument:
        first, self._filters = self.position, 0
        if not self._match(ROOT):
            self._take("$")
        self.steps()
        return PathArgument(self.text[first : self.position])


def evaluate(call: Call, read: Callable[[PathArgument], Any]) -> Any:
    """Return the value of a call; `read` finds the value of a path. Raises IntrinsicError, or what `read` raises."""
    values = [
        evaluate(argument, read)
        if isinstance(argument, Call)
        else read(argument)
        if isinstance(argument, PathArgument)
        else ESCAPED.sub(_unescaped, argument)
        if isinstance(argument, str)
        else argument
        for argument in call.arguments
    ]
    if is_longer(values, MOST_ARGUMENTS):
        raise IntrinsicError(f"The arguments can't have more than {MOST_ARGUMENTS:,} characters")
    kinds, function = FUNCTIONS[call.name]
    for number, kind in enumerate(kinds.split()[: len(values)]):
        values[number] = _checked(kind, values[number], number + 1)
    if call.name == "Format":
        return _format(call.arguments[0], values)
    return function(*values)


def is_longer(value: Any, characters: int) -> bool:
    """Return whether a value's JSON is longer than this, without writing it: a value may repeat another many times."""
    waiting, left = [value], characters
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            left -= sum(map(len, part))
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
        left -= 1 + (len(part) if isinstance(part, str) else 0)
        if len(waiting) > left:
            return True
    return False


def missing_argument(argument: PathArgument, error: NoSuchPath, state_input: Any) -> str:
    """Return AWS's message for a path that finds nothing: it shows the state's input and the library's own message."""
    if isinstance(error, PathBound) or str(error).startswith("Filter: "):
        return str(error)
    path = argument.written[argument.written.startswith("$$") :]
    return f"The JsonPath argument for the field '{path}' could not be found in the input '{compact(state_input)}'"


def _format(argument: Any, values: Sequence[Any]) -> str:
    """Fill in a template. A literal template must escape its braces; a template from data may contain any backslash."""
    template, waiting = values[0], list(values[1:])

    def part(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1]
        if not match[2]:
            raise IntrinsicError(f"The template of States.Format has a '{match[3]}' without a backslash")
        if not waiting:
            raise IntrinsicError("The template of States.Format has more places than there are values")
        return as_java(waiting.pop(0))

    text = PARTS.sub(part, argument) if isinstance(argument, str) else DATA_PARTS.sub(part, template)
    if waiting:
        raise IntrinsicError("The template of States.Format has fewer places than there are values")
    return text


def _checked(kind: str, value: Any, number: int) -> Any:
    """Return an argument of this kind; IntrinsicError for another one."""
    types, what = KINDS[kind]
    if not isinstance(value, types) or isinstance(value, bool) or value in (math.inf, -math.inf):
        raise IntrinsicError(f"Argument {number} must be {what}")
    return math.floor(value + 0.5) if isinstance(value, float) else value


def _short(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise IntrinsicError(f"The input can't have more than {MOST_CHARACTERS:,} characters")
    return text


def _partition(array: list[Any], size: int) -> list[Any]:
    if size <= 0:
        raise IntrinsicError("The chunk size must be a positive integer")
    return [array[first : first + size] for first in range(0, len(array), size)]


def _range(first: int, last: int, step: int) -> list[int]:
    if step == 0:
        raise IntrinsicError("The third argument must not be zero")
    values = range(first, last + (1 if step > 0 else -1), step)
    if not step * (last - first) < MOST_ITEMS * step * step:
        raise IntrinsicError(f"The array can't have more than {MOST_ITEMS:,} items")
    return list(values)


def _item(array: list[Any], index: Any) -> Any:
    if isinstance(index, bool) or not isinstance(index, int | float) or index % 1 != 0:
        raise IntrinsicError("The index must be an integer")
    if not 0 <= index < len(array):
        raise IntrinsicError(f"The index {index} is outside of the array of length {len(array)}")
    return array[int(index)]


def _unique(array: list[Any]) -> list[Any]:
    found: dict[str, Any] = {}
    for value in array:
        found.setdefault(json.dumps(_canonical(value), sort_keys=True), value)
    return [*found.values()]


def _canonical(value: Any) -> Any:
    """Return a value with whole numbers as integers, so that equal values have the same text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical(entry) for entry in value]
    return {name: _canonical(entry) for name, entry in value.items()} if isinstance(value, dict) else value


def _decode(text: str) -> str:
    # documented: "MIME Base64": characters outside the alphabet are skipped, and the padding may be missing.
    digits = re.sub(r"[^A-Za-z0-9+/]", "", _short(text).rstrip("=\r\n\t "))
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4)).decode(errors="replace")
    except binascii.Error as error:
        raise IntrinsicError("The argument is not Base64") from error


def _hash(data: Any, algorithm: Any) -> str:
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise IntrinsicError(f"The algorithm must be one of {', '.join(ALGORITHMS)}")
    # documented: "The length of the stringified version of the first argument must be 10,000 characters or less".
    return hashlib.new(
        ALGORITHMS[algorithm], _short(data if isinstance(data, str) else compact(data)).encode()
    ).hexdigest()


def _merge(first: dict[str, Any], second: dict[str, Any], deep: Any) -> dict[str, Any]:
    if deep is not False:
        # documented: "Currently, Step Functions only supports the shallow merging mode".
        raise IntrinsicError("The third argument must be false: Step Functions only supports the shallow merging mode")
    return {**first, **second}


def _from_json(text: Any) -> Any:
    if text is None or not _checked("string", text, 1).strip():
        return None
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise IntrinsicError(f"Invalid JSON: {error}") from error


def _random(first: int, last: int, seed: Any = None) -> int:
    if first >= last:
        raise IntrinsicError("The start number must be less than the end number")
    # documented: inclusive start, exclusive end, the same number for the same seed, but not which number.
    return first + int(seeded_random(None if seed is None else _checked("integer", seed, 3)) * (last - first))


def _add(first: int, second: int) -> int:
    if not all(LEAST_INTEGER <= number <= MOST_INTEGER for number in (first, second)):
        raise IntrinsicError(f"The arguments must be integers in the range of {LEAST_INTEGER} and {MOST_INTEGER}")
    return first + second


def _split(text: str, delimiters: str) -> list[str]:
    parts = re.split("[" + re.escape(delimiters) + "]", text) if delimiters else [text]
    return [part for part in parts if part]


# By name: the kinds of the first arguments, others may be anything, and the function of the arguments.
FUNCTIONS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "Array": ("", lambda *values: [*values]),
    "ArrayPartition": ("array integer", _partition),
    "ArrayContains": ("array", lambda array, value: any(same(value, entry) for entry in array)),
    "ArrayRange": ("integer integer integer", _range),
    "ArrayGetItem": ("array", _item),
    "ArrayLength": ("array", len),
    "ArrayUnique": ("array", _unique),
    "Base64Encode": ("string", lambda text: base64.b64encode(_short(text).encode(errors="replace")).decode()),
    "Base64Decode": ("string", _decode),
    "Hash": ("", _hash),
    "JsonMerge": ("object object", _merge),
    "JsonToString": ("", compact),
    "StringToJson": ("", _from_json),
    "MathRandom": ("integer integer", _random),
    "MathAdd": ("integer integer", _add),
    "StringSplit": ("string string", _split),
    "UUID": ("", lambda: str(uuid.uuid4())),
    "Format": ("string", lambda template, *_values: template),
}

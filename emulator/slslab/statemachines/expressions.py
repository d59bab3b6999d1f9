"""Evaluate JSONata expressions like Step Functions: with jsonata-python, and AWS's functions, bounds and messages.

documented: https://docs.aws.amazon.com/step-functions/latest/dg/transforming-data.html (JSONata 2.0.6, the functions
that AWS adds, `$eval` not supported). Messages and bounds are measured unless a comment says otherwise.
"""

import hashlib
import json
import math
import random
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from jsonata import Jsonata
from jsonata.functions import Functions
from jsonata.jexception import JException
from jsonata.parser import Parser
from jsonata.timebox import Timebox
from jsonata.utils import Utils

from slslab.aws.json_text import parse_json

# measured: `1+1+…` with 100 terms is evaluated, with 101 refused.
DEPTH = 100
DEPTH_EXCEEDED = (
    "Stack overflow error: Check for non-terminating recursive function. Consider rewriting as tail-recursive"
)
# assumed: ms of CPU time. measured is only that AWS ends an endless expression, not when.
TIMEOUT_MS = 5_000
TIMED_OUT = "Expression evaluation timeout: Check for infinite loop"
# measured: the most elements that $range returns.
RANGE_ELEMENTS = 360_145
# measured: roughly the longest sequence [a..b].
SEQUENCE_ELEMENTS = 874_000
MEMORY_EXCEEDED = "Expression evaluation memory limit exceeded: Check for excessive memory usage"
# By the library's error code.
BOUNDS = {"D1011": DEPTH_EXCEEDED, "D1012": TIMED_OUT, "D2014": MEMORY_EXCEEDED}
# assumed: for unexpected argument values that the library doesn't report with a JSONata message.
UNUSABLE = "A function can't be applied to these values"
LONGEST_INTEGER = 2**63
# From JSONata's functions.js: the numbers that $number accepts; Python accepts others, such as 1_000 and nan.
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
BASED_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]+|0[oO][0-7]+|0[bB][01]+")
# JSONata's names for the types in a signature.
TYPES = {"a": "arrays", "b": "booleans", "f": "functions", "n": "numbers", "o": "objects", "s": "strings"}
# The attributes in which a syntax tree's node has children.
PARTS = frozenset(
    "steps stages predicate group procedure arguments body expr lhs rhs lhs_object rhs_object rhs_terms terms "
    "condition then _else expressions pattern update delete".split()
)
ALGORITHMS = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}


THREW = " threw an error during evaluation"


class QueryError(Exception):
    """An expression failed; its text follows `The JSONata expression '…' specified for the field '…'`."""


class Evaluation(Jsonata):  # type: ignore[misc]
    """Evaluates with jsonata-python, but with AWS's infinities."""

    def evaluate_numeric_expression(self, lhs: Any, rhs: Any, op: str | None) -> Any:
        """Return the result of a numeric operator; values that JSON lacks become text, as on AWS (measured)."""
        try:
            return super().evaluate_numeric_expression(lhs, rhs, op)
        except ZeroDivisionError:
            return math.copysign(math.inf, lhs) if lhs else math.nan
        except ValueError:  # a remainder of division by zero
            return math.nan

    def evaluate_range_expression(self, lhs: Any, rhs: Any) -> Any:
        """Return a sequence [a..b]; the library would allow ten million elements."""
        found = super().evaluate_range_expression(lhs, rhs)
        if found is not None and found.b - found.a > SEQUENCE_ELEMENTS:
            raise JException("D2014", 0)
        return found

    def evaluate_includes_expression(self, lhs: Any, rhs: Any) -> bool:
        """Return whether a value is among others; the library would treat true and 1 as equal."""
        if lhs is None or rhs is None:
            return False
        return any(Utils.is_deep_equal(lhs, entry) for entry in (rhs if isinstance(rhs, list) else [rhs]))


def number_text(value: float) -> str:
    """Return a number as JavaScript writes it after JSONata's rounding to 15 digits: 1e20 without an exponent."""
    rounded = float(f"{value:.15g}")
    if not math.isfinite(rounded):
        return "null"
    if rounded == 0:
        return "0"
    if 1e-6 <= abs(rounded) < 1e21:
        return f"{Decimal(repr(rounded)):f}".removesuffix(".0")
    mantissa, _, exponent = f"{rounded!r}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


def _string(value: Any, prettify: bool, margin: str = "") -> str:
    """Return `$string` of any other value like JSON.stringify; the library would write Python's numbers."""
    if value is None or value is Utils.NULL_VALUE:
        return "null"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float):
        return number_text(value)
    inside = margin + "  "
    if isinstance(value, Mapping):
        colon = ": " if prettify else ":"
        entries = [
            json.dumps(name, ensure_ascii=False) + colon + _string(entry, prettify, inside)
            for name, entry in value.items()
        ]
        opening, closing = "{}"
    elif isinstance(value, Sequence):
        entries = [_string(entry, prettify, inside) for entry in value]
        opening, closing = "[]"
    else:
        return '""' if margin else ""  # a function
    if not prettify or not entries:
        return opening + ",".join(entries) + closing
    return f"{opening}\n{inside}" + f",\n{inside}".join(entries) + f"\n{margin}{closing}"


Functions._string = staticmethod(_string)
Timebox.current_milli_time = staticmethod(lambda: round(time.process_time() * 1000))


def evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    """Return the JSON value of an expression with these variables; QueryError if it has no value."""
    try:
        evaluation = Evaluation(expression, timeout=TIMEOUT_MS, stack=DEPTH)
        evaluation.set_output_convert_nulls(False)
        bindings = {name: Utils.NULL_VALUE if value is None else value for name, value in variables.items()}
        result = evaluation.evaluate(None, {**FUNCTIONS, "eval": None, **bindings})
        if result is None:
            raise QueryError(" returned nothing (undefined).")
        return _plain(result)
    except QueryError:
        raise
    except JException as error:
        raise QueryError(f"{THREW}{_separated(error)}") from error
    except RecursionError as error:
        raise QueryError(f"{THREW}: {DEPTH_EXCEEDED}") from error
    except MemoryError as error:
        raise QueryError(f"{THREW}: {MEMORY_EXCEEDED}") from error
    except RuntimeError as error:  # raised by the library
        raise QueryError(f"{THREW}: {error}") from error
    except Exception as error:  # raised by Python: the message wouldn't explain the expression
        raise QueryError(f"{THREW}: {UNUSABLE}") from error


def read(expression: str) -> tuple[set[str], list[str]]:
    """Return the fields of `$states` that an expression refers to, such as `input`, and the names in a context.

    AWS doesn't provide a context; `$` and `$$` stand for it. QueryError, with JSONata's own message, for a syntax
    error.
    """
    try:
        nodes = list(_nodes(Jsonata(expression).ast, True))
    except JException as error:
        raise QueryError(_message(error)) from error
    except RecursionError as error:
        raise QueryError(DEPTH_EXCEEDED) from error
    paths = [node.steps for node, _ in nodes if node.type == "path" and node.steps[0].value == "states"]
    states = {steps[1].value for steps in paths if len(steps) > 1 and steps[1].type == "name"}
    return states, [
        node.value if node.type == "name" else f"${node.value}"
        for node, at_top in nodes
        if at_top and (node.type == "name" or (node.type == "variable" and node.value in ("", "$")))
    ]


def _nodes(node: Any, at_top: bool) -> Iterator[tuple[Any, bool]]:
    """Yield a node of a syntax tree and all below it, each with whether it is in the whole expression's context."""
    yield node, at_top
    for name, value in vars(node).items():
        inside = at_top and name not in ("stages", "predicate", "group")
        for number, child in enumerate(_symbols(value) if name in PARTS else ()):
            yield from _nodes(child, inside and not (name == "steps" and number))


def _symbols(value: Any) -> Iterator[Any]:
    if isinstance(value, Parser.Symbol):
        yield value
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _symbols(entry)


def _separated(error: JException) -> str:
    """Return a message with AWS's separator before it: a full stop before a JSONata code, else a colon."""
    if error.error in BOUNDS:
        return f": {BOUNDS[error.error]}"
    if error.error not in JException.error_codes:
        return f": {error.error}"
    return f". {error.error}: {_message(error)}"


def _message(error: JException) -> str:
    """Return JSONata's own message for an error: the library says Object for function and shows values like Python."""
    extra = TYPES.get(str(error.extra), error.extra) if error.error == "T0412" else error.extra
    values = iter((error.current, error.expected, extra))

    def shown(match: re.Match[str]) -> str:
        value = next(values)
        return str(value) if match[1] else json.dumps(value, default=str)

    return re.sub(r"\{\{(\{)?\w+\}\}\}?", shown, JException.error_codes[error.error].replace("Object", "function"))


def _plain(value: Any) -> Any:
    """Return a result as JSON: whole numbers without a point up to a long's range; QueryError for a function.

    The library's lists contain its own marks and share parts with the variables.
    """
    if value is None or value is Utils.NULL_VALUE:
        return None
    if isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        whole = value.is_integer() and abs(value) < LONGEST_INTEGER
        return int(value) if whole else value
    if isinstance(value, int):
        return value if -LONGEST_INTEGER <= value < LONGEST_INTEGER else float(value)
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, Utils.RangeList):
        return list(range(value.a, value.b))
    if isinstance(value, Sequence):
        return [_plain(entry) for entry in value]
    raise QueryError(" returned an unsupported result type.")


def _partition(array: Sequence[Any] | None, size: float | None) -> Any:
    if not array:
        return None
    if size is None:
        return [array]
    size = int(size)
    if size < 0:
        raise JException("D3137", 0, "Second argument must be zero or greater")
    return [array[first : first + size] for first in range(0, len(array), size)] if size else None


def _range(first: float | None, last: float | None, step: float | None) -> Any:
    if first is None or last is None or step is None or not int(step):
        return None
    first, last, step = int(first), int(last), int(step)
    if (last - first) // step >= RANGE_ELEMENTS:
        raise JException("D2014", 0)
    values = list(range(first, last + (1 if step > 0 else -1), step))
    # measured: a single element isn't wrapped in an array, and an empty result is undefined.
    return values if len(values) > 1 else values[0] if values else None


def _distinct(values: Any) -> Any:
    if not isinstance(values, list) or len(values) <= 1:
        return values
    found = Utils.create_sequence() if Utils.is_sequence(values) else []
    for value in values:
        if not any(Utils.is_deep_equal(value, known) for known in found):
            found.append(value)
    return found


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, int | float):
        return None if value is None else value + 0  # a boolean becomes 1 or 0
    if value is Utils.NULL_VALUE:
        raise JException("T0410", 0, 1, "number")
    if BASED_NUMBER.fullmatch(value):
        return int(value, 0)
    number = float(value) if NUMBER.fullmatch(value) else math.inf
    if not math.isfinite(number):
        raise JException("D3030", 0, value)
    return number


def _hash(value: str | None, algorithm: str | None) -> str | None:
    if value is None or algorithm is None:
        return None
    if algorithm not in ALGORITHMS:
        # documented: the names; the message is assumed.
        raise JException("D3137", 0, f"Unsupported hashing algorithm: {algorithm}")
    return hashlib.new(ALGORITHMS[algorithm], value.encode()).hexdigest()


def seeded_random(seed: float | None) -> float:
    """Return a number in [0, 1); with a seed, the first of java.util.Random's (measured)."""
    if seed is None:
        return random.random()
    mask = (1 << 48) - 1
    state = (int(seed) ^ 0x5DEECE66D) & mask
    bits = []
    for size in (26, 27):
        state = (state * 0x5DEECE66D + 0xB) & mask
        bits.append(state >> (48 - size))
    return ((bits[0] << 27) + bits[1]) / (1 << 53)


def _parse(text: Any) -> Any:
    if text is None:
        return None
    if text is Utils.NULL_VALUE:
        raise JException("T0410", 0, 1, "parse")
    try:
        value = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise JException("D3137", 0, f"Invalid JSON: {error}") from error
    return Utils.NULL_VALUE if value is None else value


def _uuid(_value: Any) -> str:
    return str(uuid.uuid4())


# The functions that AWS adds to JSONata, or that the library implements differently; missing arguments are None.
FUNCTIONS: Mapping[str, Any] = {
    name: Jsonata.JNativeFunction(name, signature, sys.modules[__name__], function.__name__)
    for name, signature, function in (
        ("partition", "<an?>", _partition),
        ("range", "<nnn?>", _range),
        ("hash", "<ss?>", _hash),
        ("random", "<n?>", seeded_random),
        ("uuid", "<:s>", _uuid),  # `$map` passes the value
        ("parse", "<s?>", _parse),
        ("distinct", "<x:x>", _distinct),
        ("number", "<(nsb)-:n>", _number),
    )
}

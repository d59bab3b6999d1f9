"""Arithmetic in a data file: only + - * / with parentheses, names and numbers.

Expressions are evaluated as fractions, so results don't depend on the order of operations or on a precision.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Self

# Significant digits when a fraction has no finite decimal, such as a third.
DIGITS = 50
LONGEST = 400
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_CHARACTERS = re.compile(r"[A-Za-z0-9_.+\-*/() ]+")
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_NUMBER = re.compile(r"[0-9]+(_[0-9]+)*(\.[0-9]+)?")
# Put before every name, so that a name may be a Python keyword such as `with`. Texts can't contain it.
_PREFIX = "ν"
_Values = Mapping[str, Decimal] | Mapping[str, Fraction]
_Node = Callable[[_Values], Fraction]


@dataclass(frozen=True)
class Expression:
    """Arithmetic as it was written, and its names in the order of first appearance."""

    text: str
    names: tuple[str, ...]
    _evaluate: _Node = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: object) -> Self:
        """Parse a text; ValueError for anything but + - * / ( ), names and numbers."""
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{text!r} is not arithmetic")
        if len(text) > LONGEST:
            raise ValueError(f"it has {len(text):,} characters; the limit is {LONGEST}")
        if not _CHARACTERS.fullmatch(text):
            raise ValueError(f"{text!r} has more than + - * / ( ), names and numbers")
        source = _NAME.sub(lambda name: _PREFIX + name[0], text.strip())
        try:
            tree = ast.parse(source, mode="eval").body
        except SyntaxError as trouble:
            raise ValueError(f"{text!r} is not arithmetic") from trouble
        return cls(text.strip(), tuple(dict.fromkeys(_NAME.findall(text))), _compile(tree, source))

    def evaluate(self, values: _Values) -> Fraction:
        """Return its exact value; KeyError for a name that isn't in `values`, ZeroDivisionError as usual."""
        return self._evaluate(values)

    def fill(self, values: Mapping[str, Decimal]) -> str:
        """Return its text with names replaced by the digits in `values`."""
        return _NAME.sub(lambda name: as_text(values[name[0]]), self.text)


def as_text(value: Decimal) -> str:
    """Return a decimal's digits, never with an exponent."""
    return format(value, "f")


def as_decimal(value: Fraction) -> Decimal:
    """Return the fraction as a decimal: exact if it ends within 50 significant digits, otherwise rounded to 50."""
    with localcontext() as context:
        context.prec = DIGITS
        return Decimal(value.numerator) / Decimal(value.denominator)


def _compile(node: ast.expr, source: str) -> _Node:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        calculate, left, right = _OPERATORS[type(node.op)], _compile(node.left, source), _compile(node.right, source)
        return lambda values: calculate(left(values), right(values))
    if isinstance(node, ast.Name):
        name = node.id.removeprefix(_PREFIX)
        return lambda values: Fraction(values[name])
    written = ast.get_source_segment(source, node) or ""
    if isinstance(node, ast.Constant) and _NUMBER.fullmatch(written):
        # Read the digits as text: Python would turn the literal into a binary float.
        number = Fraction(written)
        return lambda _: number
    raise ValueError(f"{written.replace(_PREFIX, '')!r} is neither + - * / nor a name or a number")

"""Arithmetic in data files: exact, and nothing but arithmetic."""

import operator
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab_lab.papers.expressions import LONGEST, Expression, as_decimal, as_text

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
NAMES = ("a", "with", "lambda", "x_1", "None")
VALUES = {name: Decimal(number) for name, number in zip(NAMES, ("0.1", "3", "0.0000166667", "7", "1024"), strict=True)}
Tree = tuple[str, Fraction]


def numbers() -> st.SearchStrategy[Tree]:
    printed = st.decimals(min_value=0, max_value=10**6, places=4).map(as_text)
    return printed.map(lambda text: (text, Fraction(text)))


def named() -> st.SearchStrategy[Tree]:
    return st.sampled_from(NAMES).map(lambda name: (name, Fraction(VALUES[name])))


def combined(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """A text of two in parentheses, with its value calculated without any parser."""

    def join(left: Tree, sign: str, right: Tree) -> Tree | None:
        if sign == "/" and not right[1]:
            return None
        return f"({left[0]} {sign} {right[0]})", OPERATORS[sign](left[1], right[1])

    joined = st.builds(join, inner, st.sampled_from(tuple(OPERATORS)), inner)
    return joined.filter(lambda one: one is not None).map(lambda one: one or ("0", Fraction(0)))


@given(st.recursive(numbers() | named(), combined, max_leaves=8))
def test_a_value_is_the_fraction_that_arithmetic_gives(tree: Tree) -> None:
    text, value = tree
    expression = Expression.parse(text)
    assert expression.evaluate(VALUES) == value
    # With its numbers put in it is worth the same, and names nothing.
    filled = Expression.parse(expression.fill(VALUES))
    assert (filled.names, filled.evaluate({})) == ((), value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("2 - 3 - 4", "-5"),
        ("96 / 4 / 8", "3"),
        ("96 / (4 / 8)", "192"),
        ("1 / 3 * 3", "1"),
        ("0.1 + 0.2", "0.3"),
        ("15.44 * 2.685 * 0.0000166667", "0.00069094138188"),
        ("75_735_669 * 1", "75735669"),
        ("without / with", "2"),
    ],
)
def test_what_is_written_has_the_value_of_its_digits(text: str, value: str) -> None:
    values = {"without": Decimal("6.0"), "with": Decimal("3.0")}
    assert as_decimal(Expression.parse(text).evaluate(values)) == Decimal(value)


def test_names_by_first_appearance_and_digits_as_given() -> None:
    expression = Expression.parse(" b * (a - b) / c2 ")
    assert (expression.text, expression.names) == ("b * (a - b) / c2", ("b", "a", "c2"))
    values = {"a": Decimal("0.0660"), "b": Decimal("0.0000001"), "c2": Decimal(9)}
    assert expression.fill(values) == "0.0000001 * (0.0660 - 0.0000001) / 9"
    assert expression == Expression.parse("b * (a - b) / c2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a ** 2", r"'a \*\* 2' is neither"),
        ("a // 2", "'a // 2' is neither"),
        ("-a", "'-a' is neither"),
        ("b * +a", r"'\+a' is neither"),
        ("f(2)", r"'f\(2\)' is neither"),
        ("a.real", r"'a\.real' is neither"),
        ("().a", r"'\(\)\.a' is neither"),
        ("1e5", "'1e5' is neither"),
        ("0x10", "'0x10' is neither"),
        ("1.", r"'1\.' is neither"),
        (".5", r"'\.5' is neither"),
        ("2j", "'2j' is neither"),
        ("a and b", "is not arithmetic"),
        ("a b", "is not arithmetic"),
        ("1 +", "is not arithmetic"),
        ("((1)", "is not arithmetic"),
        ("007", "is not arithmetic"),
        ("", "'' is not arithmetic"),
        ("  ", "is not arithmetic"),
        (2, "2 is not arithmetic"),
        ("a, b", "has more than"),
        ("a[0]", "has more than"),
        ("a = 1", "has more than"),
        ("a < b", "has more than"),
        ("a % b", "has more than"),
        ("'a'", "has more than"),
        ("a\n+ b", "has more than"),
        ("a # b", "has more than"),
        ("٣ + 1", "has more than"),
        ("ν + 1", "has more than"),
        ("1 + " * LONGEST + "1", "it has 1,601 characters; the limit is 400"),
        ("(" * 390 + "1", "is not arithmetic"),
    ],
)
def test_anything_else_is_refused(text: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Expression.parse(text)


@given(st.text(max_size=40) | st.text("ab01._+-*/() ", max_size=40))
def test_any_text_is_arithmetic_or_refused(text: str) -> None:
    refusal, expression = "", None
    try:
        expression = Expression.parse(text)
    except ValueError as error:
        refusal = str(error)
    if expression is None:
        assert refusal.endswith(("is not arithmetic", "names and numbers", "a name or a number"))
        return
    try:
        value = expression.evaluate(dict.fromkeys(expression.names, Decimal(2)))
    except ZeroDivisionError:
        return
    assert isinstance(value, Fraction)


def test_what_is_not_given_and_what_divides_by_zero() -> None:
    with pytest.raises(KeyError, match="b"):
        Expression.parse("a + b").evaluate({"a": Decimal(1)})
    with pytest.raises(ZeroDivisionError):
        Expression.parse("1 / (a - a)").evaluate({"a": Decimal(1)})


def test_a_decimal_is_exact_if_it_ends_and_has_50_digits_if_not() -> None:
    assert str(as_decimal(Fraction(1, 1024))) == "0.0009765625"
    assert str(as_decimal(Fraction(-1, 3))) == "-0." + "3" * 50
    assert as_text(Decimal("1E-9")) == "0.000000001"

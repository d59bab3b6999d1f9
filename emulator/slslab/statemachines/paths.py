"""Evaluate JSONPath like Step Functions: a definite path returns a value, any other path the array of its matches.

documented: https://docs.aws.amazon.com/step-functions/latest/dg/amazon-states-language-paths.html and Jayway's JsonPath
(https://github.com/json-path/JsonPath), which AWS uses, as its messages show: a filter tests an object itself, several
names at a path's end return one object, and a text equals a number that is written the same. measured, in others'
recordings: `No results for path`, `Missing property in path`, `can only be applied to arrays`.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from statistics import fmean
from typing import Any, NamedTuple

from slslab.statemachines.bounded import Unfinished
from slslab.statemachines.filters import OPERATORS, compact, is_number

# assumed: AWS documents no bound; this one ends a path such as `$..*..*..*` within a few seconds.
MOST_NODES = 1_000_000
MOST_FILTERS = 50
# Longer texts are parsed each time, because a parsed path takes a hundred times the text's memory.
LONGEST_KEPT = 256
NAME = re.compile(r"[^\s.\[\]()*?,'\"]+")
# In a filter, an operator also ends a name; a function's argument accepts only RFC 9535's shorthand names.
FILTER_NAME = re.compile(r"[^\s.\[\]()*?,'\"=!<>&|~/]+")
ARGUMENT_NAME = re.compile(r"[\w\x80-\U0010ffff]+")
ROOT = re.compile(r"\$(?:\$|[A-Za-z_]\w*)")
SPACE = re.compile(r"\s*")
QUOTED = re.compile(r"'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
INDEX = re.compile(r"-?\d{1,18}")
SLICE = re.compile(r"\s*(-?\d{1,18})?\s*:\s*(-?\d{1,18})?\s*\]")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
PATTERN = re.compile(r"/((?:\\.|[^/\\])*)/([a-zA-Z]*)")
OPERATOR = re.compile(r"===|!==|==|!=|=~|<=|>=|<|>|(?:nin|in|subsetof|anyof|noneof|all|contains|size|empty)\b")
WORDS = {"true": True, "false": False, "null": None}
# Pattern flags in Java and in Python.
FLAGS = {"i": re.IGNORECASE, "s": re.DOTALL, "m": re.MULTILINE, "x": re.VERBOSE, "u": re.UNICODE}
SHOWN = 500


class PathError(ValueError):
    """A text isn't a JSONPath, or not the call of an intrinsic function."""


class NoSuchPath(LookupError):
    """A path finds nothing in a document; the text is Jayway's."""


# What a definite path and another path find in a filter where nothing matches.
MISSING = object()
NOTHING: list[Any] = []


class PathBound(NoSuchPath):
    """A path reached a bound of its evaluation."""


class Step(NamedTuple):
    """One step of a path: what it selects below a value. With `scan` it also selects below every descendant."""

    kind: str
    text: str
    argument: Any = None
    scan: bool = False

    @property
    def definite(self) -> bool:
        """Whether it selects at most one value."""
        if self.scan or self.kind in ("wildcard", "slice", "filter"):
            return False
        return self.kind in ("function", "merged") or len(self.argument) == 1


class Search:
    """The evaluation of one path: the document, and how many values may still be visited."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._left = MOST_NODES

    def visit(self) -> None:
        """Count a value; PathBound beyond the bound."""
        self._left -= 1
        if self._left < 0:
            raise PathBound(f"The path selects more than {MOST_NODES:,} values, which slslab does not evaluate")


Test = Callable[[Any, Search], bool]


@dataclass(frozen=True)
class Path:
    """A parsed path."""

    steps: tuple[Step, ...]

    @property
    def definite(self) -> bool:
        """Whether it leads to one value: a function at the end turns many into one."""
        if self.steps and self.steps[-1].kind == "function":
            return True
        return all(step.definite for step in self.steps)

    @property
    def reference(self) -> bool:
        """Whether it is a Reference Path, with only names and indexes."""
        return all(step.kind in ("names", "indexes") and step.definite for step in self.steps)

    @property
    def ends_with_index(self) -> bool:
        """Whether its last step is an array index."""
        return self.definite and bool(self.steps) and self.steps[-1].kind == "indexes"

    def read(self, document: Any) -> Any:
        """Return what it finds in a document; NoSuchPath if a path's definite part finds nothing."""
        try:
            return self.find(document, Search(document))
        except Unfinished as error:
            raise PathBound(f"A pattern in the path could not be matched: {error}") from error

    def find(self, start: Any, search: Search) -> Any:
        """Return what it finds below a value."""
        values, definite, shown = [start], True, "$"
        for number, step in enumerate(self.steps):
            definite = definite and not step.scan
            if step.kind == "function" and not definite:
                values = [values]
            needed = self.definite and number < len(self.steps) - 1
            found: list[Any] = []
            for value in _descendants(values, search) if step.scan else values:
                for selected in _select(step, value, search, shown if definite else "", needed):
                    search.visit()
                    found.append(selected)
            values, shown, definite = found, shown + step.text, definite and step.definite
        if not self.definite:
            return values
        if not values:
            raise NoSuchPath(f"No results for path: {shown}")
        return values[0]

    def write(self, document: Any, value: Any) -> Any:
        """Return a document with a value set at this Reference Path; NoSuchPath where that is impossible."""
        if not self.steps:
            return value
        holder = [document]
        parent: Any = holder
        key: Any = 0
        # Not by recursion: a path may have thousands of steps.
        for step in self.steps:
            child = parent[key]
            [wanted] = step.argument
            if step.kind == "names" and isinstance(child, dict):
                child = {**child}
                child.setdefault(wanted, {})
            elif step.kind == "indexes" and isinstance(child, list) and -len(child) <= wanted < len(child):
                child = [*child]
            else:
                raise NoSuchPath(step.text)
            parent[key] = child
            parent, key = child, wanted
        parent[key] = value
        return holder[0]


def _descendants(values: Sequence[Any], search: Search) -> Iterator[Any]:
    """Yield each value and all below it, parents first."""
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        search.visit()
        yield value
        if isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)


def _select(step: Step, value: Any, search: Search, shown: str, needed: bool) -> Iterator[Any]:
    """Yield what a step selects from a value. `shown` is the path so far, as long as it is definite.

    measured, in others' recordings: `$.a[*]` is an empty array if `a` is missing, and `$[1:]` of an object fails.
    """
    if step.kind == "function":
        yield FUNCTIONS[step.argument[0]](value, *step.argument[1:])
    elif step.kind == "merged" and isinstance(value, dict):
        yield {name: value[name] for name in step.argument if name in value}
    elif step.kind in ("names", "merged"):
        for name in step.argument:
            if isinstance(value, dict) and name in value:
                yield value[name]
            elif needed:
                raise NoSuchPath(f"Missing property in path {shown}['{name}']")
    elif step.kind == "wildcard":
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif step.kind == "filter" and isinstance(value, dict):
        if step.argument(value, search):
            yield value
    elif step.kind == "filter" and step.scan:
        return  # an array isn't tested; its elements are scanned themselves
    elif isinstance(value, list):
        if step.kind == "filter":
            yield from (entry for entry in value if step.argument(entry, search))
        elif step.kind == "slice":
            yield from value[step.argument[0] : step.argument[1]]
        else:
            yield from (value[index] for index in step.argument if -len(value) <= index < len(value))
    elif shown:
        context = compact(value)[:SHOWN]
        raise NoSuchPath(f"Filter: {step.text} can only be applied to arrays. Current context is: {context}")


def _numbers(value: Any) -> list[float]:
    numbers = [entry for entry in value if is_number(entry)] if isinstance(value, list) else []
    if not numbers:
        raise NoSuchPath("Aggregation function attempted to calculate value using empty array")
    return numbers


def _deviation(value: Any) -> float:
    numbers = _numbers(value)
    return math.sqrt(max(0.0, fmean(number * number for number in numbers) - fmean(numbers) ** 2))


def _element(value: Any, index: int) -> Any:
    if not isinstance(value, list) or not -len(value) <= index < len(value):
        raise NoSuchPath(f"Array index {index} not in path")
    return value[index]


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, list | dict) else None


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "length": _length,
    "size": _length,
    "keys": lambda value: [*value] if isinstance(value, dict) else None,
    "min": lambda value: float(min(_numbers(value))),
    "max": lambda value: float(max(_numbers(value))),
    "sum": lambda value: math.fsum(_numbers(value)),
    "avg": lambda value: fmean(_numbers(value)),
    "stddev": _deviation,
    "first": lambda value: _element(value, 0),
    "last": lambda value: _element(value, -1),
    "index": _element,
}


def parse(text: str) -> Path:
    """Parse a path such as `$.a[0]`; PathError for any other text."""
    return (_parse if len(text) <= LONGEST_KEPT else _parse.__wrapped__)(text)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Path:
    reader = Reader(text)
    try:
        path = reader.path("$")
    except RecursionError:
        raise PathError(f"The path is nested too deeply: {text[:SHOWN]}") from None
    if reader.position < len(text):
        raise PathError(f"Could not parse token starting at position {reader.position}: {text}")
    return path


def split_root(text: str) -> tuple[str, str]:
    """Return the root of a path in a field (`$`, the Context object; a variable's name; or empty, the input), and the
    path below it."""
    root = ROOT.match(text)
    return (root[0][1:], f"${text[root.end() :]}") if root else ("", text)


def of_field(text: str) -> Path:
    """Return the path in a field: into the state's input, the Context object (`$$`) or a variable (`$name`)."""
    return parse(split_root(text)[1])


class Reader:
    """Reads a path from a text."""

    def __init__(self, text: str, name: re.Pattern[str] = NAME) -> None:
        self.text = text
        self.position = 0
        self._name = name
        self._filters = 0

    def path(self, root: str) -> Path:
        """Read a path that begins with `$` or `@`, as far as it extends."""
        if not self._take(root):
            raise PathError(f"Path must start with '{root}': {self.text}")
        return self.steps()

    def steps(self) -> Path:
        """Read the path that follows a root."""
        steps: list[Step] = []
        while True:
            scan = self._take("..")
            if self._take("[") or (not scan and self._take(".[")):
                steps.append(self._bracket()._replace(scan=scan))
            elif scan or self._take("."):
                steps.append(self._dotted()._replace(scan=scan))
            else:
                if steps and steps[-1].kind == "names" and len(steps[-1].argument) > 1:
                    steps[-1] = steps[-1]._replace(kind="merged")
                return Path(tuple(steps))
            if len(steps) > 1 and steps[-2].kind == "function":
                raise PathError(f"A function must be the last step of a path: {self.text}")

    def _take(self, token: str) -> bool:
        taken = self.text.startswith(token, self.position)
        self.position += len(token) * taken
        return taken

    def _next(self, token: str) -> bool:
        self._match(SPACE)
        return self._take(token)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def _expect(self, token: str) -> None:
        if not self._next(token):
            raise self._wrong(f"'{token}'")

    def _need(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        if not (match := self._match(pattern)):
            raise self._wrong(what)
        return match

    def _wrong(self, expected: str) -> PathError:
        return PathError(f"Expected {expected} at position {self.position}: {self.text}")

    def _dotted(self) -> Step:
        if self._take("*"):
            return Step("wildcard", "[*]")
        name = self._need(self._name, "a name")
        if not self._take("("):
            return Step("names", f"['{name[0]}']", (name[0],))
        if name[0] not in FUNCTIONS:
            raise PathError(f"slslab does not evaluate the function {name[0]}() of a path: {self.text}")
        self._match(SPACE)
        arguments = [int(index[0])] if name[0] == "index" and (index := self._match(INDEX)) else []
        if not self._next(")") or len(arguments) != (name[0] == "index"):
            raise self._wrong(f"the end of {name[0]}()")
        return Step("function", f".{name[0]}()", (name[0], *arguments))

    def _bracket(self) -> Step:
        """Read from after a `[` to its `]`."""
        if self._next("*"):
            step = Step("wildcard", "[*]")
        elif self._take("?"):
            step = Step("filter", "[?]", self._filter())
        elif ends := self._match(SLICE):
            first, end = (int(part) if part else None for part in ends.groups())
            return Step("slice", f"[{ends[1] or ''}:{ends[2] or ''}]", (first, end))
        elif self.text[self.position : self.position + 1] in ("'", '"'):
            names = tuple(self._listed(self._quoted))
            step = Step("names", "[" + ",".join(f"'{name}'" for name in names) + "]", names)
        else:
            indexes = tuple(self._listed(self._index))
            step = Step("indexes", "[" + ",".join(map(str, indexes)) + "]", indexes)
        self._expect("]")
        return step

    def _listed(self, read: Callable[[], Any]) -> Iterator[Any]:
        while True:
            self._match(SPACE)
            yield read()
            if not self._next(","):
                return

    def _quoted(self) -> str:
        match = self._need(QUOTED, "a quoted name")
        return re.sub(r"\\(.)", r"\1", match[1] if match[1] is not None else match[2], flags=re.DOTALL)

    def _index(self) -> int:
        return int(self._need(INDEX, "an index")[0])

    def _filter(self) -> Test:
        outside, self._name = self._name, FILTER_NAME
        self._expect("(")
        test = self._alternatives()
        self._name = outside
        return test

    def _alternatives(self) -> Test:
        """Read from after a `(` to its `)`."""
        test = self._joined("||", any, lambda: self._joined("&&", all, self._test))
        self._expect(")")
        return test

    def _joined(self, operator: str, combined: Callable[[Iterator[bool]], bool], read: Callable[[], Test]) -> Test:
        tests = [read()]
        while self._next(operator):
            tests.append(read())
        return lambda value, search: combined(test(value, search) for test in tests)

    def _test(self) -> Test:
        self._filters += 1
        if self._filters > MOST_FILTERS:
            raise PathError(f"slslab evaluates at most {MOST_FILTERS} tests in a path: {self.text[:SHOWN]}")
        if self._next("!"):
            test = self._test()
            return lambda value, search: not test(value, search)
        if self._take("("):
            return self._alternatives()
        left, is_path = self._operand()
        self._match(SPACE)
        if not (operator := self._match(OPERATOR)):
            if not is_path:
                raise self._wrong("an operator")
            return lambda value, search: not _is_absent(left(value, search))
        self._match(SPACE)
        right, _ = self._operand()
        compare = OPERATORS[operator[0]]
        return lambda value, search: compare(left(value, search), right(value, search))

    def _operand(self) -> tuple[Callable[[Any, Search], Any], bool]:
        """Read a path or a literal, and return whether it is a path."""
        root = self.text[self.position : self.position + 1]
        if root in ("@", "$") and root:
            path = self.path(root)

            def find(value: Any, search: Search) -> Any:
                try:
                    found = path.find(value if root == "@" else search.document, search)
                    return found if path.definite or found else NOTHING
                except PathBound:
                    raise
                except NoSuchPath:
                    return MISSING

            return find, True
        literal = self._literal()
        return lambda _value, _search: literal, False

    def _literal(self) -> Any:
        if number := self._match(NUMBER):
            return json.loads(number[0]) if not re.match(r"-?0\d", number[0]) else float(number[0])
        if pattern := self._match(PATTERN):
            try:
                flags = reduce(lambda known, flag: known | FLAGS[flag], pattern[2], re.NOFLAG)
                return re.compile(pattern[1].replace("\\/", "/"), flags)
            except (re.error, KeyError) as error:
                raise PathError(f"Could not parse the pattern {pattern[0]}: {error}") from error
        if self._take("["):
            if self._next("]"):
                return []
            values = [*self._listed(self._literal)]
            self._expect("]")
            return values
        for word, value in WORDS.items():
            if self._take(word):
                return value
        return self._quoted()


def _is_absent(found: Any) -> bool:
    return found is MISSING or found is NOTHING

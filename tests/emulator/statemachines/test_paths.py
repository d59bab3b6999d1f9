"""JSONPath: what each operator selects, what is refused, and how far a path may go."""

import json
from typing import Any

import pytest

from slslab.statemachines import paths

DOCUMENT: dict[str, Any] = {
    "l": [{"a": 1, "n": "x"}, {"a": 2, "n": "y", "s": ["p", "q"]}, {"a": None, "n": "3"}],
    "o": {"p": {"a": 4}, "it's": 5, "a b": 6, "é": 7, "detail-type": 8},
    "m": [[1, 2], [3, 4]],
    "n": None,
    "t": "text",
    "v": [3, 1, 2],
    "e": [],
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # Definite paths are values.
        ("$", DOCUMENT),
        ("$.l[0].a", 1),
        ("$.l[-1].n", "3"),
        ("$.l[2].a", None),
        ("$.n", None),
        ("$['o']['p']", {"a": 4}),
        ('$["o"]["p"].a', 4),
        ("$.o.['a b']", 6),
        (r"$.o['it\'s']", 5),
        ("$.o.é", 7),
        ("$.o.detail-type", 8),
        ("$.m[1][0]", 3),
        ("$[ 'v' ][ 1 ]", 1),
        ("$['n','t']", {"n": None, "t": "text"}),
        ("$['n','nowhere']", {"n": None}),
        # All others are arrays, whatever they find.
        ("$.l[*].a", [1, 2, None]),
        ("$.o.p.*", [4]),
        ("$.o['*']", "absent"),
        ("$.l[0,2].n", ["x", "3"]),
        ("$.l[0,9].n", ["x"]),
        ("$.l[0:1]", [DOCUMENT["l"][0]]),
        ("$.v[1:]", [1, 2]),
        ("$.v[:1]", [3]),
        ("$.v[-2:]", [1, 2]),
        ("$.v[:-1]", [3, 1]),
        ("$.v[5:9]", []),
        ("$.v[:]", [3, 1, 2]),
        ("$.l[0]['a','n']", {"a": 1, "n": "x"}),
        ("$.l[*]['a','n']", [{"a": 1, "n": "x"}, {"a": 2, "n": "y"}, {"a": None, "n": "3"}]),
        ("$..a", [1, 2, None, 4]),
        ("$.o..a", [4]),
        ("$..s[0]", ["p"]),
        ("$.m..[0]", [[1, 2], 1, 3]),
        ("$.m..*", [[1, 2], [3, 4], 1, 2, 3, 4]),
        ("$.e[*]", []),
        ("$.nowhere[*]", []),
        ("$.nowhere.deep[*].a", []),
        ("$.nowhere[1:]", []),
        ("$..nowhere", []),
        ("$.t[*]", []),
        # Filters.
        ("$.l[?(@.a == 1)].n", ["x"]),
        ("$.l[?(@.a==2)].n", ["y"]),
        ("$.l[?(@.a != 1)].n", ["y", "3"]),
        ("$.l[?(@.a < 2)].n", ["x"]),
        ("$.l[?(@.a <= 2)].n", ["x", "y"]),
        ("$.l[?(@.a > 1)].n", ["y"]),
        ("$.l[?(@.a >= 1)].n", ["x", "y"]),
        ("$.l[?(@.n > 'x')].n", ["y"]),
        ("$.l[?(@.n == 3)].n", ["3"]),
        ("$.l[?(@.n === 3)].n", []),
        ("$.l[?(@.n !== '3')].n", ["x", "y"]),
        ("$.l[?(@.a == null)].n", ["3"]),
        ("$.l[?(@.a)].n", ["x", "y", "3"]),
        ("$.l[?(@.s)].n", ["y"]),
        ("$.l[?(!@.s)].n", ["x", "3"]),
        ("$.l[?(@.s[0] == 'p')].n", ["y"]),
        ("$.l[?(@.a == 1 || @.a == 2 && @.n == 'x')].n", ["x"]),
        ("$.l[?((@.a == 1 || @.a == 2) && @.n == 'y')].n", ["y"]),
        ("$.l[?(@.n in ['x', 'z'])].n", ["x"]),
        ("$.l[?(@.n nin ['x', 'z'])].n", ["y", "3"]),
        ("$.l[?(@.s subsetof ['p', 'q', 'r'])].n", ["y"]),
        ("$.l[?(@.s anyof ['q'])].n", ["y"]),
        ("$.l[?(@.s noneof ['z'])].n", ["y"]),
        ("$.l[?(@.s all ['p'])].n", ["y"]),
        ("$.l[?(@.s contains 'q')].n", ["y"]),
        ("$.l[?(@.s size 2)].n", ["y"]),
        ("$.l[?(@.s empty false)].n", ["y"]),
        ("$.l[?(@.n =~ /[XY]/i)].n", ["x", "y"]),
        ("$.l[?(@.n =~ /x|y/)].n", ["x", "y"]),
        ("$.v[?(@ > 1)]", [3, 2]),
        ("$.v[?(@ == $.v[1])]", [1]),
        ("$.o.p[?(@.a == 4)]", [{"a": 4}]),
        ("$..[?(@.a == 4)]", [{"a": 4}]),
        ("$.l[?(@.a == true)].n", []),
        ("$[?(@.t == 'text')].v", [[3, 1, 2]]),
        # Functions.
        ("$.v.length()", 3),
        ("$.o.length()", 5),
        ("$.v.sum()", 6.0),
        ("$.v.min()", 1.0),
        ("$.v.max()", 3.0),
        ("$.v.avg()", 2.0),
        ("$.m[0].stddev()", 0.5),
        # Jayway's formula; a sum of squared distances from the mean ends in other digits.
        ("$.v.stddev()", 0.8164965809277263),
        ("$.v.first()", 3),
        ("$.v.last()", 2),
        ("$.v.index(-1)", 2),
        ("$.o.p.keys()", ["a"]),
        ("$.t.length()", None),
        ("$.m[*][0].sum()", 4.0),
    ],
)
def test_what_a_path_selects(path: str, expected: Any) -> None:
    if expected == "absent":
        with pytest.raises(paths.NoSuchPath):
            paths.parse(path).read(DOCUMENT)
    else:
        assert paths.parse(path).read(DOCUMENT) == expected


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("$.x", "No results for path: $['x']"),
        ("$.o.x", "No results for path: $['o']['x']"),
        ("$.x.y", "Missing property in path $['x']"),
        ("$.t.y", "No results for path: $['t']['y']"),
        ("$.v[3]", "No results for path: $['v'][3]"),
        ("$.v[-4]", "No results for path: $['v'][-4]"),
        ("$.v[99999999999999999]", "No results for path: $['v'][99999999999999999]"),
        ("$.t[0]", 'Filter: [0] can only be applied to arrays. Current context is: "text"'),
        ("$[1:]", "Filter: [1:] can only be applied to arrays. Current context is: {"),
        ("$.e.sum()", "Aggregation function attempted to calculate value using empty array"),
    ],
)
def test_why_a_path_leads_nowhere(path: str, reason: str) -> None:
    with pytest.raises(paths.NoSuchPath) as raised:
        paths.parse(path).read(DOCUMENT)
    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize(
    "path",
    [
        *("", "a", ".a", "$a", "$.", "$..", "$. a", "$ .a", "$.a ", "$.a.", "$[", "$[]", "$['a'", "$[a]", "$['a',]"),
        *("$[1,]", "$[1:2:3]", "$[?]", "$[?()]", "$[?(1)]", "$[?(@.a ==)]", "$[?(@.a == )]", "$[?(@.a = 1)]"),
        *("$[?(@.a == 1]", "$[?(@.a ~ 1)]", "$[?(@.a =~ /(/)]", "$[?(@.a =~ /a/q)]", "$.a.nothing()", "$.a.length().b"),
        *("$.a.index()", "$.a.length(1)", "$.a.concat('b')", "@.a", "$['a\"]", "$.a b"),
        *("$[?(" * 2000, "$[?(" + "(" * 5000 + "@.a" + ")" * 5000 + ")]", "$[?(@.a in " + "[" * 5000),
    ],
)
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(paths.PathError):
        paths.parse(path)


def test_the_roots_of_a_field_s_path() -> None:
    assert paths.of_field("$$.Execution").read({"Execution": 1}) == 1
    assert paths.of_field("$x").read([1]) == [1]
    assert paths.of_field("$x_1[0]").read([1]) == 1
    assert paths.of_field("$.x").read({"x": 1}) == 1
    for text in ("$1", "x", "$$x", "$-"):
        with pytest.raises(paths.PathError):
            paths.of_field(text)


@pytest.mark.parametrize(
    ("path", "reference"),
    [("$", True), ("$.a['b'][0]", True), ("$.a[*]", False), ("$..a", False), ("$['a','b']", False), ("$.a[1:]", False)],
)
def test_which_paths_are_references(path: str, reference: bool) -> None:
    assert paths.parse(path).reference is reference


@pytest.mark.parametrize(
    ("document", "path", "expected"),
    [
        ({"a": 1}, "$", 9),
        ({"a": 1}, "$.a", 9),
        ({"a": 1}, "$.b.c", {"a": 1, "b": {"c": 9}}),
        ({"a": {"b": 1}}, "$['a']['c']", {"a": {"b": 1, "c": 9}}),
        ([{"a": 1}, {"b": 2}], "$[1].p", [{"a": 1}, {"b": 2, "p": 9}]),
        ({"l": [1, 2]}, "$.l[0]", {"l": [9, 2]}),
    ],
)
def test_where_a_result_is_written(document: Any, path: str, expected: Any) -> None:
    before = json.dumps(document)
    written = paths.parse(path).write(document, 9)
    assert written == (9 if path == "$" else {"a": 9} if path == "$.a" else expected)
    assert json.dumps(document) == before


@pytest.mark.parametrize(
    ("document", "path"), [("text", "$.a"), ({"a": 1}, "$.a.b"), ([1], "$[1]"), ({"l": [1]}, "$.l.a"), (None, "$.a")]
)
def test_where_a_result_can_t_be_written(document: Any, path: str) -> None:
    with pytest.raises(paths.NoSuchPath):
        paths.parse(path).write(document, 9)


def test_a_path_of_many_steps_is_written() -> None:
    written = paths.parse("$" + ".a" * 20_000).write({}, 9)
    for _ in range(20_000):
        written = written["a"]
    assert written == 9


def test_a_path_that_selects_too_much_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MOST_NODES", 1_000)
    wide = {str(number): {str(inner): [1, 2, 3] for inner in range(10)} for number in range(10)}
    for path in ("$..*..*..*", "$..[?(@..[?(@..*)])]", "$..*[?($..* == 1)]"):
        with pytest.raises(paths.NoSuchPath, match=r"more than 1,000 values"):
            paths.parse(path).read(wide)


def test_a_pattern_that_backtracks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slslab.statemachines.bounded.LIMIT_S", 0.2)
    with pytest.raises(paths.NoSuchPath, match="Expression evaluation timeout"):
        paths.parse("$[?(@ =~ /(a+)+/)]").read(["a" * 40 + "!"])


def test_a_deep_document_is_scanned() -> None:
    deep: Any = {"a": 1}
    for _ in range(5_000):
        deep = {"d": deep}
    assert paths.parse("$..a").read(deep) == [1]


def test_long_texts_are_not_kept() -> None:
    assert paths.parse("$.a") is paths.parse("$.a")
    assert paths.parse("$" + ".a" * 1_000) is not paths.parse("$" + ".a" * 1_000)

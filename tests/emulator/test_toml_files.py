"""Whatever a price book, profile, paper or plan holds, it is read, or one sentence says what is wrong with it."""

import contextlib
import copy
import gc
import random
import string
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from docs.pages.discrepancies import work_out
from tests.lab.replay.recordings import TRACES, make_plan

from slslab.errors import RequestError
from slslab.predict.profiles.profile import PROFILES, Profile, load_profile, profile_names
from slslab.run.bill import PRICES, Book, Usage, compute_bill, load_book
from slslab_lab.papers.paper import FOLDERS, Paper, load_paper
from slslab_lab.papers.recomputation import recompute
from slslab_lab.replay.kernel.kernel import ReplayError, play
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.runs.planning import load_plan
from slslab_workers.architecture import architectures

SEEDS = 150
LONGEST = 2_000
USAGE = Usage(
    [{"request_id": "a", "architecture": "x86_64", "memory_mb": 1769, "billed_ms": 10**9, "ephemeral_mb": 600}],
    {"object.put": 10**9},
    10**9,
    (("g4dn.xlarge", 10**6),),
)
VALUES = (
    *(0, 1, -1, 2, 1 << 63, (1 << 63) - 1, -(1 << 63), 10**400, 1 << 40_000),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, 1e12, 1e-12, float("nan"), float("inf"), float("-inf")),
    *("", "x", "0", "1e400", "nan", "\0", "a\nb", "\x1b[2J", "x" * 5000, "(" * 300, "1/0", "9" * 390, "aws-us-east-1"),
    *(True, False, [], {}, [[]], [1, "x", {}], {"": 1}, {"value": 1, "status": "assumed", "source": "x"}),
    *(tomllib.loads(f"x = {text}")["x"] for text in ("1979-05-27", "07:32:00", "1979-05-27T07:32:00Z")),
)
# A discrepancy that divides by zero.
NOTHING = """title = "t"
topic = "t"
where = "w"
said = "s"
found = "f"
consequence = "c"
workings = [{ what = "w", expression = "1 / (1 - 1)", places = 1 }]"""
PIECES = (
    *(b"\xff", b"\xef\xbb\xbf", b"\0", b"\r", b'"', b"'''", b"[", b"]", b"[[", b"=", b"#", b"\n", b"a.b.c=1\n", b"1e9"),
    *(b"a = " + b"[" * 500, b"a = " + b"{a=" * 500, b"a" + b".a" * 500 + b" = 1\n", b"1e99999999999999999999"),
    *(b"0x" + b"f" * 5000, b"9" * 5000, b"inf", b"-nan", b"1e999999999", b"1e-999999999", b"\\u0000", b"\xed\xa0\x80"),
)


def replay(profile: Profile, measured: Measured) -> None:
    """A profile may lack what a program does."""
    with contextlib.suppress(RequestError, ReplayError):
        play(measured.program, profile)


def calculate(paper: Paper, _measured: Measured) -> None:
    for table in paper.tables:
        recompute(paper, table)
    for discrepancy in paper.discrepancies:
        for working in discrepancy.workings:
            work_out(paper, working)


def bill(book: Book, _measured: Measured) -> None:
    compute_bill(USAGE, book).as_document()


def texts(*folders: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.glob("*.toml"))]


# How each is read, what it is then used for, and files to begin with.
KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Any, Measured], object], list[str]]] = {
    "book": (load_book, bill, texts(PRICES)),
    "profile": (load_profile, replay, [(PROFILES / f"{name}.toml").read_text() for name in profile_names()]),
    "paper": (load_paper, calculate, texts(*FOLDERS)),
    "plan": (
        load_plan,
        lambda plan, _: plan.to_document(),
        [tomli_w.dumps(make_plan(name).to_document()) for name in architectures()],
    ),
}


@pytest.fixture(scope="module")
def measured() -> Measured:
    """A short recorded run."""
    return read_measured(TRACES / "allreduce")


def tables(value: Any) -> Iterator[dict[str, Any] | list[Any]]:
    """Every table and array with something in it."""
    if isinstance(value, dict | list) and value:
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from tables(inner)


def spoiled(seed: int, text: str) -> bytes:
    """The file with something wrong in it, mostly."""
    order = random.Random(seed)
    if order.random() < 0.3:
        data = bytearray(text.encode())
        for _ in range(order.choice((1, 1, 3))):
            at = order.randrange(len(data))
            data[at : at + order.choice((0, 0, 1, 5))] = order.choice(PIECES)
        return bytes(data)
    document = copy.deepcopy(tomllib.loads(text))
    for _ in range(order.choice((1, 1, 1, 3))):
        place: Any = order.choice(list(tables(document)))
        key: Any = order.choice(list(place) if isinstance(place, dict) else range(len(place)))
        match order.randrange(6):
            case 0:
                del place[key]
            case 1 if isinstance(place, dict):
                place["".join(order.choices(string.printable, k=order.randint(0, 5)))] = copy.deepcopy(
                    order.choice(VALUES)
                )
            case 2 if isinstance(place, dict):
                place[key] = copy.deepcopy(place[order.choice(list(place))])
            case _:
                place[key] = copy.deepcopy(order.choice(VALUES))
        if not document:
            break
    try:
        return tomli_w.dumps(document).encode()
    except ValueError:  # of a number too long to be written
        return b"x = 0x" + b"f" * 5000


def check(kind: str, path: Path, measured: Measured) -> str:
    """What is said about a file; empty if it is read, and can be used."""
    load, use, _ = KINDS[kind]
    try:
        loaded = load(path)
    except RequestError as error:
        refusal = error
    else:
        use(loaded, measured)
        return ""
    for sentence in (refusal.message, refusal.hint):
        assert sentence.isprintable(), sentence
        assert 5 < len(sentence) < LONGEST
    assert str(path) in refusal.message
    assert refusal.message.endswith((".", "…"))
    return refusal.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a = " + b"[" * 5000, "nested too deep"),
        (b"a = " + b"{a=" * 5000, "nested too deep"),
        (b"schema = 1\nname" + b".a" * 5000 + b" = 1", "nested too deep"),
        (b"schema = 0x" + b"f" * 5000, "an integer has more than 64 bits"),
        (b"schema = 1\nbase = 0x" + b"f" * 5000, "an integer has more than 64 bits"),
        (b"a = 1\n\xff", "is not TOML"),
        ("a = 1".encode("utf-16"), "is not TOML"),
    ],
)
def test_what_no_file_has(kind: str, data: bytes, says: str, tmp_path: Path, measured: Measured) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(data)
    assert says in check(kind, path, measured)


@pytest.mark.parametrize(
    ("kind", "old", "new", "says"),
    [
        # Of these some were read and failed in use: without end, without memory, or by an exception.
        ("paper", "published = {", "published = { x = 1e9999999999999999999,", "a number that is too large"),
        ("paper", "published = {", "published = { x = 1e999999999,", "more than 50 digits before or after"),
        (
            "paper",
            "[ways]",
            f"[[discrepancies]]\n{NOTHING.replace('= 1 }', '= 0e-999999999 }')}\n[ways]",
            "more than 50 digits",
        ),
        ("paper", "[ways]", f"[[discrepancies]]\n{NOTHING}\n[ways]", "discrepancies.0.workings.0 divides by zero"),
        (
            "profile",
            "transition_ms = { value = 40",
            "transition_ms = { value = 1e308",
            "less than or equal to 1000000000",
        ),
        ("profile", "speed = { value = 1.0", "speed = { value = 1e-320", "must be at least 1e-06"),
        ("profile", "servers = { value = 1", "servers = { value = 1e9", "a whole number from 1 to 1000000"),
        ("plan", "[options]", "options = 3\n[others]", "must be a table"),
        ("plan", "[options]", "options = 'x'\n[others]", "must be a table"),
        ("plan", "lr = ", "lr = 'x' #", "cannot be carried out: lr is 'x'."),
        ("book", "currency", '"x\\n\\u001b[2J" = 1\ncurrency', "at x\\n\\x1b[2J: Extra inputs"),
    ],
)
def test_what_a_file_may_not_have(kind: str, old: str, new: str, says: str, tmp_path: Path, measured: Measured) -> None:
    path = tmp_path / "file.toml"
    path.write_text(KINDS[kind][2][0].replace(old, new, 1), encoding="utf-8")
    assert says in check(kind, path, measured)


def test_a_line_of_arithmetic_may_have_more_digits_than_any_other(tmp_path: Path, measured: Measured) -> None:
    path = tmp_path / "file.toml"
    large = NOTHING.replace("1 / (1 - 1)", " * ".join(["9" * 50] * 4))
    path.write_text(KINDS["paper"][2][0].replace("[ways]", f"[[discrepancies]]\n{large}\n[ways]", 1), encoding="utf-8")
    assert check("paper", path, measured) == ""


def test_what_is_refused_leaves_nothing_in_memory(tmp_path: Path, measured: Measured) -> None:
    path = tmp_path / "file.toml"
    path.write_text(
        KINDS["paper"][2][0].replace("[ways]", f"[[discrepancies]]\n{NOTHING}\n[ways]", 1), encoding="utf-8"
    )
    counts = []
    gc.freeze()  # neither looks at nor counts what other tests have left
    for _ in range(4):
        assert check("paper", path, measured)
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[3] - counts[1] < 100


@pytest.mark.parametrize("kind", KINDS)
def test_any_file(kind: str, tmp_path: Path, measured: Measured) -> None:
    path = tmp_path / "file.toml"
    originals, answers = KINDS[kind][2], []
    for seed in range(SEEDS):
        path.write_bytes(spoiled(seed, originals[seed % len(originals)]))
        answers.append(check(kind, path, measured))
    assert "" in answers, "some can be used"
    assert len(set(answers)) > SEEDS // 2, "others have many kinds of error"

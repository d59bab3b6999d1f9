"""What users see does not change unnoticed: the help of every command, and documents, pages and tables of kept runs.

recorded.json has a digest of each output. `make same BASE=COMMIT` shows how an output differs from a commit's, and
`python -m tests.same.test_recorded` records all anew: a commit that does says so in its subject.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest
from tests import commands
from tests.same import cases
from tests.same.record import ROOT, Checkout, record

RECORDED = Path(__file__).with_name("recorded.json")


class Here(Checkout):
    """This checkout's commands, all in one process: one of their own, as threads of other tests may print in this."""

    at_once = 1

    def __init__(self, process: ProcessPoolExecutor) -> None:
        super().__init__(ROOT, ROOT)
        self._process = process

    def _execute(self, words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
        return self._process.submit(commands.slslab, *words, variables=variables, directory=ROOT).result()


def digest(text: str) -> str:
    """Return what is kept of an output."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kept() -> dict[str, str]:
    """Return the recorded digests by name."""
    return dict(json.loads(RECORDED.read_text()))


@contextmanager
def one_process() -> Iterator[Here]:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        yield Here(process)


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    with one_process() as checkout:
        yield checkout


def test_help_is_as_recorded(here: Here) -> None:
    shown = {name: digest(page) for name, page in here.help()}
    assert shown == {name: value for name, value in kept().items() if name.startswith("help")}


@pytest.mark.parametrize("name", [name for name, _ in cases.quick()])
def test_a_kept_run_is_shown_as_recorded(here: Here, name: str) -> None:
    assert digest(here.record(dict(cases.quick())[name])) == kept()[name], "make same BASE=main shows how it differs"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in cases.slow()])
def test_a_study_is_shown_as_recorded(here: Here, name: str) -> None:
    assert digest(here.record(dict(cases.slow())[name])) == kept()[name], "make same BASE=main shows how it differs"


if __name__ == "__main__":
    with one_process() as checkout:
        outputs = record(checkout, bits=False)
    RECORDED.write_text(json.dumps({name: digest(text) for name, text in outputs.items()}, indent=0) + "\n")

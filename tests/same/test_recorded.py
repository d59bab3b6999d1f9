"""What users see does not change unnoticed: the help of every command, and documents, pages and tables of kept runs.

recorded.json has a digest of each output. `make same BASE=COMMIT` shows how an output differs from a commit's, and
`python -m tests.same.test_recorded` records all anew: a commit that does says so in its subject.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests import commands
from tests.same import cases
from tests.same.record import ROOT, Checkout, record

RECORDED = Path(__file__).with_name("recorded.json")


class Here(Checkout):
    """This checkout's commands, in this process."""

    at_once = 1

    def __init__(self) -> None:
        super().__init__(ROOT, ROOT)

    def _execute(self, words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
        return commands.slslab(*words, variables=variables, directory=ROOT)


def digest(text: str) -> str:
    """Return what is kept of an output."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kept() -> dict[str, str]:
    """Return the recorded digests by name."""
    return dict(json.loads(RECORDED.read_text()))


def test_help_is_as_recorded() -> None:
    shown = {name: digest(page) for name, page in Here().help()}
    assert shown == {name: value for name, value in kept().items() if name.startswith("help")}


@pytest.mark.parametrize("name", [name for name, _ in cases.quick()])
def test_a_kept_run_is_shown_as_recorded(name: str) -> None:
    assert digest(Here().record(dict(cases.quick())[name])) == kept()[name], "make same BASE=main shows how it differs"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in cases.slow()])
def test_a_study_is_shown_as_recorded(name: str) -> None:
    assert digest(Here().record(dict(cases.slow())[name])) == kept()[name], "make same BASE=main shows how it differs"


if __name__ == "__main__":
    outputs = record(Here(), bits=False)
    RECORDED.write_text(json.dumps({name: digest(text) for name, text in outputs.items()}, indent=0) + "\n")

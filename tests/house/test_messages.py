"""The page of all sentences that users meet: a changed sentence is a changed line of messages.txt, for review."""

from pathlib import Path

import pytest
from tests.house import messages


def test_the_page_of_messages_has_every_sentence() -> None:
    written = messages.RECORD.read_text(encoding="utf-8")
    assert messages.collect() == written, "read the new sentences, then: python -m tests.house.messages"


def test_what_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "slslab_lab" / "commands" / "demo.py"
    file.parent.mkdir(parents=True)
    file.write_text(MODULE)
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    assert list(messages.messages(file)) == [
        "The folder to read.",
        "Print the demo. slslab demo",
        "{path} is not a folder, but {…}.",
        "give --folder.",
        "wall time, s",
        "one of three words",
        "no large functions",
    ]


MODULE = '''"""A module."""

PHRASE = "two words"

@click.command()
@click.option("--folder", help="The folder to read.")
def demo(path):
    """Print the demo.

    slslab demo
    """
    raise RequestError(f"{path} is not a folder, but {kind(path)}.", "give --folder.")


def table():
    """Return the table."""
    return Table(("s", "wall time, s"), sort_by("datum.low"), "one of three words")


def doctor():
    """Check the host."""
    return _finding("cores", False, "1", "no large functions")
'''

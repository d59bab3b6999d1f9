"""The smoke alarm for stiff English: no folder has more marker phrases than its record, which only goes down."""

from pathlib import Path

import pytest
from tests.house import language


@pytest.mark.parametrize("folder", language.FOLDERS)
def test_no_folder_has_more_marker_phrases_than_its_record(folder: str) -> None:
    counted = language.count(folder)
    assert counted.rate <= language.recorded()[folder], (
        f"{folder}: {counted.rate:.1f} per 10,000 words. Say it plainly: python -m tests.house.language {folder}"
    )


def test_docstrings_messages_and_pages_are_counted_but_no_names_and_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    module = (
        '"""Return what is told of this."""\nbeside = "beside"\nraise ValueError("There is no such file: nobody.")\n'
    )
    (tmp_path / "lab" / "module.py").write_text(module)
    (tmp_path / "lab" / "page.md").write_text("It goes\non. That is\nfine.\n```\nwhose\n```\nIt goes on.\n")
    monkeypatch.setattr(language, "ROOT", tmp_path)
    assert [place.partition(":")[2] for place in language.count("lab").found] == [
        "1: is told", "3: is no", "3: nobody", "1: goes on", "7: goes on",
    ]  # fmt: skip

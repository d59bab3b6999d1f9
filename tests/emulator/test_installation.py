"""Hints on how to add an extra, by where pip got slslab."""

import json
from pathlib import Path
from typing import Any

import pytest

from slslab.installation import install_command


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'slslab[train]'"),
        (
            {"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}},
            "pip install --editable '/home/me/my clone[train]'",
        ),
        ({"url": "file:///home/me/clone", "dir_info": {}}, "pip install 'slslab[train] @ file:///home/me/clone'"),
        (
            {"url": "file:///tmp/slslab-0.2.0-py3-none-any.whl", "archive_info": {"hash": "sha256=0"}},
            "pip install 'slslab[train] @ file:///tmp/slslab-0.2.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.com/slslab.git", "vcs_info": {"vcs": "git", "commit_id": "4209a24b"}},
            "pip install 'slslab[train] @ git+https://example.com/slslab.git@4209a24b'",
        ),
    ],
)
def test_an_extra_is_added_from_where_slslab_came_from(
    source: dict[str, Any] | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "slslab-0.2.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: slslab\nVersion: 0.2.0\n")
    if source is not None:
        (information / "direct_url.json").write_text(json.dumps(source))
    monkeypatch.syspath_prepend(tmp_path)
    assert install_command("train") == command

"""Archives of folders, and paths that can't be archived."""

import io
import os
import zipfile
from pathlib import Path

import pytest

from slslab.aws.limits import lambda_limits
from slslab.errors import RequestError
from slslab_aws.deploy.packages import content_of


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder / "inner/__pycache__").mkdir(parents=True)
        (tmp_path / folder / "inner/b.py").write_text("b")
        (tmp_path / folder / "a.py").write_text("a")
    os.utime(tmp_path / "one/a.py", (0, 0))
    (tmp_path / "two/inner/__pycache__/b.pyc").write_text("compiled")
    archive = content_of(tmp_path, "one", code=True)
    assert archive == content_of(tmp_path, "two", code=True)
    assert sorted(zipfile.ZipFile(io.BytesIO(archive)).namelist()) == ["a.py", "inner/b.py"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "there is no folder or file absent."),
        ("a" * 300, f"'{'a' * 80}' cannot be read: File name too long."),
        ("/proc/self/environ", "/proc/self/environ is a view of this host, not a file."),
        ("/proc/self", " is a view of this host, not a file."),
        ("/sys", " is a view of this host, not a file."),
        ("/dev/zero", "there is no folder or file /dev/zero."),
        ("pipe", "there is no folder or file pipe."),
        ("linked", "linked/environ is a view of this host, not a file."),
        ("large", f"large has more than {lambda_limits().unzipped_bytes:,} bytes, the most that Lambda unzips."),
    ],
)
def test_a_path_that_is_no_code_is_refused(tmp_path: Path, name: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/environ").symlink_to("/proc/self/environ")
    (tmp_path / "large").mkdir()
    with (tmp_path / "large/sparse").open("wb") as sparse:
        sparse.truncate(lambda_limits().unzipped_bytes + 1)
    with pytest.raises(RequestError) as refused:
        content_of(tmp_path, name, code=True)
    assert refused.value.message.endswith(message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".", "there is no file .."),
        ("binary", "'binary' cannot be read: its name or its content isn't text."),
        ("/proc/self/status", "/proc/self/status is a view of this host, not a file."),
    ],
)
def test_a_definition_is_a_file_of_text(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(RequestError) as refused:
        content_of(tmp_path, name, code=False)
    assert refused.value.message == message

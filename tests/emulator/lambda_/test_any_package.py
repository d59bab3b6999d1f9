"""Whatever is uploaded as a package is unpacked within its own folder, or refused as AWS does and leaves nothing."""

import base64
import io
import os
import random
import shutil
import struct
import warnings
import zipfile
from pathlib import Path

import pytest

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring
from slslab.aws.limits import lambda_limits
from slslab.lambda_.packages import Image, Packages

SEEDS = 200
LIMITS = lambda_limits().changed(unzipped_bytes=1 << 20)
OWNER = Keyring().owner
NAMES = (
    *(
        "app.py",
        "app.py",
        "a/b.py",
        "a/",
        "a",
        "../x",
        "../../x",
        "/etc/x",
        "//x",
        "C:\\x",
        "a/../../../x",
        ".",
        "..",
        "./",
    ),
    *(
        "",
        "\0",
        "a\0b",
        "\ud800",
        "é",
        "x" * 300,
        "x" * 60_000,
        "a/" * 700 + "f",
        "a/" * 1400,
        "a\\b",
        "\n",
        "~/x",
        "con",
    ),
)
MODES = (0, 0o644, 0o755, 0o4777, 0o120777, 0o140000, 0o020666, 0o060666, 0o010644, 0o040755, 0o177777)
# The signature of a record, and where its fields stand: offset and size.
RECORDS = (
    (b"PK\x03\x04", ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))),
    (b"PK\x01\x02", ((6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (38, 4), (42, 4))),
    (b"PK\x05\x06", ((4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2))),
)
NUMBERS = (0, 1, 8, 12, 14, 99, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF, 0x0801, 0x0041)
ZIP64 = struct.pack("<HHQQQ", 1, 24, 1 << 63, (1 << 64) - 1, (1 << 64) - 1)
EXTRAS = (b"", b"", b"", ZIP64, ZIP64[:12], b"\x01\x00\xff\xff", b"xxxxx", b"\x01", struct.pack("<HHQ", 1, 8, 5))
LOCATOR = struct.pack("<4sLQL", b"PK\x06\x07", 0, (1 << 64) - 1, 1)


def archive(seed: int) -> bytes:
    """An archive, mostly with something wrong in it."""
    order = random.Random(seed)
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as package:
        warnings.simplefilter("ignore")  # of names that are there already
        for _ in range(order.choice((0, 1, 1, 2, 3, 5))):
            entry = zipfile.ZipInfo("name")
            entry.filename = order.choice(NAMES)
            entry.external_attr = order.choice(MODES) << 16
            entry.compress_type = order.choice((0, 0, 8, 8, 8, 12, 14))
            entry.extra = order.choice(EXTRAS)
            try:
                package.writestr(entry, order.choice((b"", b"x", b"# code\n" * 50, bytes(100_000), b"/etc/passwd")))
            except (ValueError, struct.error, UnicodeEncodeError):  # what Python's own library does not write
                return order.randbytes(200)
    data = bytearray(buffer.getvalue())
    for _ in range(order.choice((0, 1, 1, 2, 4))):
        signature, fields = order.choice(RECORDS)
        found = data.find(signature, order.randrange(len(data)))
        match order.randrange(8):
            case 0:
                at = order.randrange(len(data))
                data[at : at + order.randrange(9)] = order.randbytes(order.randrange(9))
            case 1:
                data = data[: order.randrange(1, len(data) + 1)]
            case 2:
                data = data[order.randrange(len(data)) :] + order.randbytes(order.randrange(50))
            case 3:
                data[:0] = order.randbytes(order.randrange(70_000))
            case 4 if signature == b"PK\x05\x06" and found >= 0:
                data[found:found] = LOCATOR
            case _ if found >= 0:
                at, size = order.choice(fields)
                data[found + at : found + at + size] = (order.choice(NUMBERS) & (1 << 8 * size) - 1).to_bytes(
                    size, "little"
                )
        if not data:
            break
    return bytes(data)


def fetch(_bucket: str, _key: str, _version: str | None, _limit: int) -> bytes:
    raise AssertionError


def find_image(_uri: str) -> Image:
    raise AssertionError


def upload(data: bytes, packages: Packages, outside: Path) -> bool:
    """Whether the package is taken; all that it leaves is then within its own folder, and goes with it."""
    home = outside / "home"
    try:
        code = packages.store("f", {"ZipFile": base64.b64encode(data).decode()})
    except ServiceError as error:
        refused: ServiceError | None = error
    else:
        refused = None
        assert code.directory is not None
        assert sorted(os.listdir(home)) == [code.directory.name, f"{code.directory.name}.zip"]
        for folder, folders, files in os.walk(code.directory):
            for path in (Path(folder, name) for name in (*folders, *files)):
                assert path.is_dir() or path.is_file()
                assert not path.is_symlink()
                assert path.stat().st_mode & 0o7022 == 0
        packages.release(code)
        packages.remove_unused([])
        packages.settle()
    if refused is not None:
        assert (refused.status, refused.error_type) == (400, "InvalidParameterValueException")
        assert refused.message.startswith(("Could not unzip uploaded file", "Unzipped size must be smaller"))
    assert os.listdir(outside) == ["home"]
    assert os.listdir(home) == []
    return refused is None


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    (tmp_path / "home").mkdir()
    return Packages(tmp_path / "home", LIMITS, fetch, find_image, OWNER)


def test_folders_too_deep_to_be_removed_are_refused(packages: Packages, tmp_path: Path) -> None:
    """Each entry makes some of them, so that none is too much at once."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for depth in (200, 400, 800, 1200, 1600, 1900):
            package.writestr("a/" * depth, b"")
        package.writestr("x" * 300, b"")
    assert not upload(buffer.getvalue(), packages, tmp_path)


def test_an_entry_beyond_any_end_is_refused(packages: Packages, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        package.writestr("app.py", b"x")
    data = bytearray(buffer.getvalue())
    entry, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    extra = struct.pack("<HHQ", 1, 8, 1 << 63)
    data[end + 12 : end + 16] = (end - entry + len(extra)).to_bytes(4, "little")
    data[end:end] = extra
    data[entry + 42 : entry + 46] = b"\xff" * 4
    data[entry + 30 : entry + 32] = len(extra).to_bytes(2, "little")
    assert not upload(bytes(data), packages, tmp_path)


def test_any_package(packages: Packages, tmp_path: Path) -> None:
    taken = sum(upload(archive(seed), packages, tmp_path) for seed in range(SEEDS))
    assert 0 < taken < SEEDS
    packages.close()
    shutil.rmtree(tmp_path)

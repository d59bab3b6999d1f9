"""Packages on disk: unpacked, measured, kept while something uses them, and removed."""

import base64
import io
import zipfile
from pathlib import Path

import pytest

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring
from slslab.aws.limits import lambda_limits
from slslab.lambda_.packages import Code, Image, Packages
from slslab.testing import packaged

LIMITS = lambda_limits().changed(unzipped_bytes=1000, image_bytes=1000)
OWNER = Keyring().owner


def fetch(bucket: str, key: str, version: str | None, _limit: int) -> bytes:
    return packaged(f"# {bucket}/{key}\n" if version is None else f"# version {version}\n")


def find_image(uri: str) -> Image:
    return Image(uri, "sha256:abc", 1001 if uri == "large" else 1000)


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(tmp_path, LIMITS, fetch, find_image, OWNER)


def directory(code: Code) -> Path:
    assert code.directory is not None
    return code.directory


def test_a_package_is_kept_until_it_is_released_and_unused(packages: Packages) -> None:
    code = packages.store("f", {"S3Bucket": "code", "S3Key": "app.zip"})
    assert (directory(code) / "app.py").read_text() == "# code/app.zip\n"
    packages.remove_unused([])
    packages.settle()
    assert directory(code).exists(), "it is not yet registered"
    packages.release(code)
    packages.remove_unused([code])
    packages.settle()
    assert directory(code).exists(), "a function uses it"
    packages.remove_unused([])
    packages.settle()
    assert not directory(code).exists()


def test_the_version_of_an_object_that_a_request_names_is_stored(packages: Packages) -> None:
    code = packages.store("f", {"S3Bucket": "code", "S3Key": "app.zip", "S3ObjectVersion": "v1"})
    assert (directory(code) / "app.py").read_text() == "# version v1\n"


@pytest.mark.parametrize("other", ["S3Bucket", "S3Key", "S3ObjectVersion", "ImageUri"])
def test_an_archive_in_the_request_is_all_of_its_code(packages: Packages, other: str) -> None:
    with pytest.raises(ServiceError, match="do not provide other FunctionCode parameters when providing a ZipFile"):
        packages.store("f", {"ZipFile": base64.b64encode(packaged("")).decode(), other: "x"})


def linked(*entries: tuple[str, str, bool]) -> dict[str, str]:
    """Return the code of a request: entries of a name, its text or target, and whether it is a symbolic link."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as package:
        for name, text, link in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o120777 if link else 0o100644) << 16
            package.writestr(entry, text)
    return {"ZipFile": base64.b64encode(archive.getvalue()).decode()}


def test_symbolic_links_stay_links(packages: Packages) -> None:
    code = packages.store("f", linked(("lib/a.so.1", "library", False), ("lib/a.so", "a.so.1", True)))
    link = directory(code) / "lib/a.so"
    assert link.readlink() == Path("a.so.1")
    assert link.read_text() == "library"


@pytest.mark.parametrize("order", [1, -1])
def test_nothing_is_unpacked_through_a_link(packages: Packages, tmp_path: Path, order: int) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(ServiceError, match="Could not unzip"):
        packages.store("f", linked(*(("a", str(outside), True), ("a/b", "text", False))[::order]))
    assert list(outside.iterdir()) == []


def test_a_directory_of_the_host_is_never_removed(packages: Packages, tmp_path: Path) -> None:
    packages.allow(tmp_path)
    code = packages.store("f", {"S3Bucket": "hot-reload", "S3Key": str(tmp_path)})
    packages.release(code)
    packages.remove_unused([])
    packages.settle()
    assert directory(code) == tmp_path
    assert tmp_path.exists()


def test_sizes_are_those_of_the_largest_package_beside_the_layer(packages: Packages, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_bytes(bytes(700))
    packages.allow(tmp_path)
    packages.store("f", {"S3Bucket": "hot-reload", "S3Key": str(tmp_path)})
    packages.store("f", {"S3Bucket": "code", "S3Key": "app.zip"})
    sizes = packages.sizes()
    assert (sizes["unzipped_bytes"], sizes["limit_bytes"]) == (700, 1000)
    assert sizes["needs_container_image"] == (700 + sizes["layer_bytes"] > 1000)


def test_what_is_too_large_or_broken_leaves_nothing(packages: Packages, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="The image large has 1001 bytes uncompressed; at most 1000 are allowed"):
        packages.store("f", {"ImageUri": "large"})
    with pytest.raises(ServiceError, match="Could not unzip uploaded file"):
        packages.store("f", {"ZipFile": "bm90IGEgemlw"})
    assert list(tmp_path.iterdir()) == []
    assert packages.store("f", {"ImageUri": "small"}).sha256 == "abc"


def test_a_package_that_cannot_be_kept_leaves_nothing(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(kept: Path, _archive: bytes) -> None:
        kept.touch()
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(ServiceError, match="The package cannot be kept: No space left on device") as caught:
        packages.store("f", {"S3Bucket": "code", "S3Key": "app.zip"})
    assert caught.value.status == 500
    assert list(tmp_path.iterdir()) == []


def zipped(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, body in entries:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = method
            archive.writestr(entry, body)
    return buffer.getvalue()


def refusal(packages: Packages, archive: bytes, status: int = 400) -> str:
    """Return why an archive is refused, without leaving anything of it."""
    before = sorted(packages._home.rglob("*"))
    with pytest.raises(ServiceError) as caught:
        packages.store("f", {"ZipFile": base64.b64encode(archive).decode()})
    names = {400: "InvalidParameterValueException", 413: "RequestEntityTooLargeException"}
    assert (caught.value.status, caught.value.error_type) == (status, names[status])
    assert sorted(packages._home.rglob("*")) == before
    return caught.value.message


def test_sizes_are_summed_before_anything_is_inflated(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zipped(*((f"{number}.py", bytes(101)) for number in range(10)))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("an entry was opened"))
    assert refusal(packages, archive) == "Unzipped size must be smaller than 1000 bytes"


def test_an_entry_that_is_larger_than_it_says_is_refused(packages: Packages) -> None:
    archive = bytearray(zipped(("app.py", bytes(50_000_000))))
    size = archive.rindex(b"PK\x01\x02") + 24
    assert archive[size : size + 4] == (50_000_000).to_bytes(4, "little")
    archive[size : size + 4] = (10).to_bytes(4, "little")
    assert "Could not unzip" in refusal(packages, bytes(archive))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_of_which_little_may_become_much_are_refused(
    packages: Packages, method: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = zipped(("app.py", b"# code"), method=method)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("an entry was opened"))
    assert "Could not unzip" in refusal(packages, archive)


def test_entries_that_overlap_are_refused(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of entries may name the same bytes."""
    archive = zipped(("app.py", bytes(range(200))))
    begin = archive.index(b"PK\x01\x02")
    end = archive.index(b"PK\x05\x06")
    entry, tail = archive[begin:end], bytearray(archive[end:])
    tail[8:12] = (4).to_bytes(2, "little") * 2
    tail[12:16] = (4 * len(entry)).to_bytes(4, "little")
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("an entry was opened"))
    assert "Could not unzip" in refusal(packages, archive[:begin] + 4 * entry + tail)


@pytest.mark.parametrize("name", ["", "\0", "x" * 300, "app.py/below"])
def test_names_that_no_file_can_have_are_refused(packages: Packages, name: str) -> None:
    assert "Could not unzip" in refusal(packages, zipped(("app.py", b""), (name, b"x")))


def test_names_lead_nowhere_outside(packages: Packages, tmp_path: Path) -> None:
    archive = zipped(("../../out.py", b"x"), (f"{tmp_path}/absolute.py", b"x"))
    code = packages.store("f", {"ZipFile": base64.b64encode(archive).decode()})
    files = list(tmp_path.rglob("*.py"))
    assert len(files) == 2
    assert all(path.is_relative_to(directory(code)) for path in files)


def test_a_zipped_size_has_a_limit_of_its_own(tmp_path: Path) -> None:
    packages = Packages(tmp_path, LIMITS.changed(zipped_bytes=100), fetch, find_image, OWNER)
    assert refusal(packages, bytes(101), 413) == "Zipped size must be smaller than 100 bytes"


def test_an_object_needs_a_key(packages: Packages) -> None:
    with pytest.raises(ServiceError, match="needs S3Bucket and S3Key"):
        packages.store("f", {"S3Bucket": "code"})

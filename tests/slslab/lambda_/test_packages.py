"""Packages on disk: unpacked, measured, kept while something uses them, and removed."""

import asyncio
from pathlib import Path

import pytest

from slslab.aws.errors import ServiceError
from slslab.aws.limits import lambda_limits
from slslab.lambda_.packages import Code, Image, Packages
from slslab.testing import packaged

LIMITS = lambda_limits().changed(unzipped_bytes=1000, image_bytes=1000)


def fetch(bucket: str, key: str) -> bytes:
    return packaged(f"# {bucket}/{key}\n")


def find_image(uri: str) -> Image:
    return Image(uri, "sha256:abc", 1001 if uri == "large" else 1000)


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(tmp_path, LIMITS, fetch, find_image)


def directory(code: Code) -> Path:
    assert code.directory is not None
    return code.directory


def test_a_package_is_kept_until_it_is_released_and_unused(packages: Packages) -> None:
    code = packages.store("f", {"S3Bucket": "code", "S3Key": "app.zip"})
    assert (directory(code) / "app.py").read_text() == "# code/app.zip\n"
    asyncio.run(packages.remove_unused([]))
    assert directory(code).exists(), "it is not yet registered"
    packages.release(code)
    asyncio.run(packages.remove_unused([code]))
    assert directory(code).exists(), "a function uses it"
    asyncio.run(packages.remove_unused([]))
    assert not directory(code).exists()


def test_a_directory_of_the_host_is_never_removed(packages: Packages, tmp_path: Path) -> None:
    packages.allow(tmp_path)
    code = packages.store("f", {"S3Bucket": "hot-reload", "S3Key": str(tmp_path)})
    packages.release(code)
    asyncio.run(packages.remove_unused([]))
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

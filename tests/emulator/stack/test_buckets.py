"""Buckets made and checked with MinIO's client, against the embedded S3 server."""

from typing import Any

import pytest

from slslab.lambda_.emulator import Emulator
from slslab.stack import buckets
from slslab.stack.object_store import EmbeddedObjectStore

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def variables(emulator: Emulator, object_store: EmbeddedObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**emulator.keys.owner.variables(), "AWS_ENDPOINT_URL_S3": object_store.endpoint}.items():
        monkeypatch.setenv(name, value)


def test_buckets_are_made_once_and_hold_nothing_of_the_check(
    s3_client: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {bucket["Name"] for bucket in s3_client.list_buckets()["Buckets"]}
    assert buckets.main(["images", "models"]) == 0
    assert buckets.main(["models"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"bucket {name}: ready" for name in ("images", "models", "models")]
    assert {bucket["Name"] for bucket in s3_client.list_buckets()["Buckets"]} - before == {"images", "models"}
    assert s3_client.list_objects_v2(Bucket="models")["KeyCount"] == 0


def test_a_wrong_secret_is_the_hosts_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert buckets.main(["secret"]) == 3
    assert "The bucket secret cannot be used" in capsys.readouterr().err


def test_what_is_missing_or_cannot_be_a_bucket_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert buckets.main(["A"]) == 2
    assert "'A' cannot be a bucket" in capsys.readouterr().err
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    assert buckets.main(["images"]) == 2
    assert "AWS_ENDPOINT_URL_S3 is not set" in capsys.readouterr().err

"""Buckets made and checked with MinIO's client, against the embedded S3 server."""

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from slslab.aws.arns import REGION
from slslab.aws.keys import Keyring
from slslab.stack import buckets
from slslab.stack.object_store import EmbeddedObjectStore

pytestmark = pytest.mark.server
KEYS = Keyring()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedObjectStore]:
    with EmbeddedObjectStore(Path(tmp_path_factory.mktemp("s3"), "data"), KEYS, {}) as running:
        yield running


@pytest.fixture(autouse=True)
def variables(store: EmbeddedObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS.owner.variables(), "AWS_ENDPOINT_URL_S3": store.endpoint}.items():
        monkeypatch.setenv(name, value)


def test_buckets_are_made_once_and_hold_nothing_of_the_check(
    store: EmbeddedObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert buckets.main(["images", "models"]) == 0
    assert buckets.main(["models"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"bucket {name}: ready" for name in ("images", "models", "models")]
    client = boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        region_name=REGION,
        aws_access_key_id=KEYS.owner.key_id,
        aws_secret_access_key=KEYS.owner.secret,
    )
    assert {one["Name"] for one in client.list_buckets()["Buckets"]} == {"images", "models"}
    assert client.list_objects_v2(Bucket="models")["KeyCount"] == 0


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

"""The pytest plugin, used as a stranger would: docs/testing.md is run as it stands."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab.testing import create_function
from slslab.trace.records import InvocationRecord

pytestmark = pytest.mark.server

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"
OUTCOME = r"(\d+) (passed|failed|error)"


def written(directory: Path) -> dict[str, str]:
    """The code blocks of the page that begin with a file's name, as files."""
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    for name, text in blocks:
        (directory / name).write_text(text)
    return dict(blocks)


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_page_of_the_documentation_runs(tmp_path: Path) -> None:
    assert written(tmp_path).keys() == {"handler.py", "test_handler.py", "service.py"}
    tests = run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider")
    assert "1 passed" in tests.stdout, tests.stdout + tests.stderr
    service = run(tmp_path, "service.py")
    assert service.stdout.strip() == "10", service.stderr


def test_a_costly_test_fails_with_the_lines_of_its_bill(tmp_path: Path) -> None:
    written(tmp_path)
    test = (tmp_path / "test_handler.py").read_text()
    (tmp_path / "test_handler.py").write_text(test.replace('"0.00001"', '"0.0000001"'))
    done = run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider")
    assert done.returncode == 1
    assert re.search(r"The invocations cost 0\.0000\d+ USD, not below 0\.0000001:", done.stdout)
    assert "Lambda requests: 1 request = 0.0000002" in done.stdout


def test_a_directory_is_used_in_place_and_only_what_was_deployed(
    lambda_client: Any, deploy: Callable[..., str], invoke: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "link").symlink_to("code")
    name = deploy(tmp_path / "link")
    (tmp_path / "code" / "app.py").write_text("def handler(event, context):\n    return 'in place'\n")
    assert invoke(name).payload == "in place"
    with pytest.raises(ClientError, match=f"'{tmp_path}' is not below a directory that hot reload may use"):
        create_function(lambda_client, "beside", tmp_path)


@pytest.mark.parametrize("turn", [1, 2])
def test_functions_and_buckets_are_gone_after_each_test(lambda_client: Any, s3_client: Any, turn: int) -> None:
    assert lambda_client.list_functions()["Functions"] == []
    assert s3_client.list_buckets()["Buckets"] == []
    s3_client.create_bucket(Bucket="left")
    s3_client.put_object(Bucket="left", Key=f"object-{turn}", Body=b"x")


def test_a_function_finds_the_object_store_and_only_its_own_records_count(
    s3_client: Any,
    deploy: Callable[..., str],
    invoke: Callable[..., Any],
    invocations: Sequence[InvocationRecord],
    bill: Callable[..., Any],
) -> None:
    s3_client.create_bucket(Bucket="bucket")
    name = deploy(
        """
        import boto3

        def handler(event, context):
            boto3.client("s3").put_object(Bucket="bucket", Key="key", Body=b"from the function")
        """
    )
    assert invoke(name).error is None
    assert s3_client.get_object(Bucket="bucket", Key="key")["Body"].read() == b"from the function"
    [record] = invocations
    assert record.function == name
    due = bill()
    assert due.total == sum(line.amount for line in due.lines) > 0

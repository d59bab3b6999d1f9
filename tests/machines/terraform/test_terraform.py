"""Unmodified Terraform makes functions here, finds them as it made them, and removes them again.

Its provider for AWS is taken from a directory, $SLSLAB_TERRAFORM_PLUGINS (`terraform providers mirror` makes one).
"""

import json
import os
import shutil
import subprocess
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

from slslab.aws.arns import REGION
from slslab.aws.clients import HTTP, signed_headers
from slslab.lambda_.emulator import Emulator
from slslab_aws.servers import Edge

PLUGINS = os.environ.get("SLSLAB_TERRAFORM_PLUGINS")
pytestmark = [
    pytest.mark.skipif(
        shutil.which("terraform") is None or not PLUGINS, reason="no terraform, or no SLSLAB_TERRAFORM_PLUGINS"
    ),
    pytest.mark.timeout(600),
]
HANDLER = "def handler(event, context): return {'statusCode': 200, 'body': event['rawPath']}"


def write_archive(path: Path, name: str, source: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, source)


def test_a_function_with_all_that_belongs_to_it(
    aws_endpoint: Edge, emulator: Emulator, lambda_client: Any, s3_client: Any, tmp_path: Path
) -> None:
    shutil.copy(Path(__file__).with_name("main.tf"), tmp_path)
    write_archive(tmp_path / "layer.zip", "python/shared.py", "X = 1")
    write_archive(tmp_path / "code.zip", "app.py", HANDLER)
    settings = {"TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1", "AWS_REGION": REGION}
    settings |= aws_endpoint.client_environment()
    variables = {**os.environ, **emulator.keys.owner.variables(), **settings}

    def terraform(*arguments: str) -> tuple[int, str]:
        command = ["terraform", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    for command in (("init", f"-plugin-dir={PLUGINS}"), ("apply", "-auto-approve")):
        code, told = terraform(*command, "-no-color")
        assert code == 0, told
    # 0: nothing has to change, 2: something has.
    code, told = terraform("plan", "-detailed-exitcode", "-no-color")
    assert code == 0, told
    url = json.loads(terraform("output", "-json")[1])["url"]["value"] + "path"
    request = signed_headers(emulator.keys.owner, "GET", url)
    with HTTP.open(urllib.request.Request(url, headers=request)) as answer:
        assert answer.read() == b"/path"
    assert s3_client.get_object(Bucket="data", Key="key")["Body"].read() == b"body"
    code, told = terraform("destroy", "-auto-approve", "-no-color")
    assert code == 0, told
    assert lambda_client.list_functions()["Functions"] == lambda_client.list_layers()["Layers"] == []
    assert s3_client.list_buckets()["Buckets"] == []

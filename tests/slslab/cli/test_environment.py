"""Whatever a user's environment has for AWS and for other programs: ours do what they do without it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

# A port that nothing serves, so that whoever asks a proxy fails.
PROXY = "http://127.0.0.1:9"
PROGRAM = [str(Path(sys.executable).with_name("slslab"))]
VARIABLES = {
    "AWS_PROFILE": "nobody",
    "AWS_CA_BUNDLE": "/nowhere/bundle.pem",
    "AWS_ENDPOINT_URL": PROXY,
    "AWS_REGION": "mars-north-1",
    "AWS_USE_FIPS_ENDPOINT": "true",
    "AWS_RETRY_MODE": "never",
    "AWS_ACCESS_KEY_ID": "theirs",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token",
    "HTTP_PROXY": PROXY,
    "HTTPS_PROXY": PROXY,
    "http_proxy": PROXY,
    "NO_PROXY": "",
    "LC_ALL": "C",
}
PLUGIN = """
def test_functions_and_objects(deploy, invoke, s3_client):
    s3_client.create_bucket(Bucket="bucket")
    s3_client.put_object(Bucket="bucket", Key="key", Body=b"body")
    function = deploy("def handler(event, context):\\n    return {'sum': sum(event)}\\n")
    assert invoke(function, [1, 2]).payload == {"sum": 3}
"""


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, str]:
    """All of these variables, a home with files for AWS that cannot be read, and a path with a module of the user's."""
    aws = tmp_path / "home" / ".aws"
    aws.mkdir(parents=True)
    (aws / "credentials").write_text("no section\n")
    (aws / "config").write_text("[profile\n")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "handlers.py").write_text("raise RuntimeError('a module of the user')\n")
    own = {"HOME": str(aws.parent), "PYTHONPATH": str(tmp_path / "modules"), "SLSLAB_STATE": str(tmp_path / "state")}
    return {**os.environ, **VARIABLES, **own, "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A working directory with a file that is called as a module of Python's own."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "random.py").write_text("raise RuntimeError('a file of the user')\n")
    return made


def output(command: list[str], directory: Path, variables: dict[str, str]) -> str:
    """What a command prints that succeeds."""
    done = subprocess.run(command, cwd=directory, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run(hostile: dict[str, str], directory: Path) -> None:
    command = [*PROGRAM, "run", "allreduce", "--workers", "1", "--batches", "1", "--no-evaluation", "--json"]
    document = json.loads(output(command, directory, hostile))
    assert (document["status"], document["updates"]) == ("done", 1)


def test_a_service(hostile: dict[str, str], directory: Path) -> None:
    output([*PROGRAM, "up", "--detach", "--port", "0", "--s3-port", "0"], directory, hostile)
    try:
        assert json.loads(output([*PROGRAM, "status", "--json"], directory, hostile))["up"]
        printed = json.loads(output([*PROGRAM, "env", "--json"], directory, hostile))
        # The user's own client does as it always does: told to take the variables of the service, it finds them.
        own = {name: value for name, value in hostile.items() if name not in VARIABLES}
        own |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, **printed}
        asked = [str(Path(sys.executable).with_name("aws")), "lambda", "list-functions", "--query", "Functions"]
        assert json.loads(output(asked, directory.parent, own)) == []
    finally:
        output([*PROGRAM, "down"], directory, hostile)


def test_the_plugin(hostile: dict[str, str], directory: Path) -> None:
    (directory / "test_it.py").write_text(PLUGIN)
    command = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:cacheprovider"]
    assert "1 passed" in output([*command, f"--rootdir={directory}", "test_it.py"], directory, hostile)

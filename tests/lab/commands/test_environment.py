"""Whatever a user's environment has for AWS and for other programs: ours do what they do without it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests import commands

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.host.server_process import FOREIGN
from slslab.testing import ROLE, packaged

pytestmark = pytest.mark.server

# Runs `slslab` or `pytest` in a directory with these variables.
Execute = Callable[[Sequence[str], Path, Mapping[str, str]], commands.Done]
# Variables, None where it is not set; a path is one of `files`.
Setting = Mapping[str, str | Path | None]

# A port that nothing serves, so that whoever asks a proxy fails.
NOWHERE = "http://127.0.0.1:9"
NOT_THERE = "/nowhere/file"

# What programs read when they use it: each alone, in forks.
AT_USE: dict[str, Setting] = {
    "AWS_PROFILE": {"AWS_PROFILE": "nobody"},
    "~/.aws/credentials that cannot be parsed": {"HOME": Path("credentials")},
    "~/.aws/config that cannot be parsed": {"HOME": Path("config")},
    "~/.aws/config of a company": {"HOME": Path("company")},
    "AWS_CONFIG_FILE": {"AWS_CONFIG_FILE": "/"},
    "AWS_CA_BUNDLE": {"AWS_CA_BUNDLE": NOT_THERE},
    "REQUESTS_CA_BUNDLE": {"REQUESTS_CA_BUNDLE": NOT_THERE},
    "SSL_CERT_FILE": {"SSL_CERT_FILE": NOT_THERE, "SSL_CERT_DIR": NOT_THERE},
    "HTTP_PROXY": {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "ALL_PROXY": NOWHERE},
    "http_proxy": {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "all_proxy": NOWHERE},
    "NO_PROXY": {"NO_PROXY": "*, ,[::1,http://x:y", "no_proxy": "@@"},
    "AWS_ENDPOINT_URL": {"AWS_ENDPOINT_URL": NOWHERE},
    "AWS_ENDPOINT_URL_S3": {"AWS_ENDPOINT_URL_S3": NOWHERE},
    "AWS_ENDPOINT_URL_LAMBDA": {"AWS_ENDPOINT_URL_LAMBDA": NOWHERE},
    "AWS_ACCESS_KEY_ID": {
        "AWS_ACCESS_KEY_ID": "theirs",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
    },
    "AWS_REGION": {"AWS_REGION": "eu-central-1"},
    "AWS_DEFAULT_REGION": {"AWS_DEFAULT_REGION": "eu-central-1"},
    "AWS_MAX_ATTEMPTS": {"AWS_MAX_ATTEMPTS": "many"},
    "AWS_RETRY_MODE": {"AWS_RETRY_MODE": "never"},
    "AWS_USE_FIPS_ENDPOINT": {"AWS_USE_FIPS_ENDPOINT": "true"},
    "AWS_USE_DUALSTACK_ENDPOINT": {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
    "AWS_REQUEST_CHECKSUM_CALCULATION": {"AWS_REQUEST_CHECKSUM_CALCULATION": "never"},
    "HOME that cannot be": {"HOME": "/dev/null", "XDG_CACHE_HOME": None},
    "TMPDIR with a space": {"TMPDIR": Path("a directory")},
    "TMPDIR=.": {"TMPDIR": "."},
}
# What an interpreter reads when it starts, or modules when they are imported: each alone, in processes of their own.
# PYTHONUNBUFFERED is not among them: it changes when output is written and nothing else.
AT_START: dict[str, Setting] = {
    "PYTHONPATH": {"PYTHONPATH": Path("modules")},
    "PYTHONWARNINGS": {"PYTHONWARNINGS": "error"},
    "PYTHONOPTIMIZE": {"PYTHONOPTIMIZE": "2"},
    "PYTHONIOENCODING": {"PYTHONIOENCODING": "latin-1"},
    "LC_ALL=C": {"LC_ALL": "C", "LANG": None},
    "LC_ALL that is not installed": {"LC_ALL": "xx_XX.UTF-8"},
    "~/.aws/models": {"HOME": Path("models")},
}
# All at once, as far as variables may have one value.
ALL: Setting = {
    **{name: value for setting in AT_USE.values() for name, value in setting.items()},
    "HOME": Path("config"),
    "PYTHONPATH": Path("modules"),
    "LC_ALL": "C",
}
PLUGIN = """
import pytest

CODE = '''
import boto3, os
def handler(event, context):
    body = boto3.client("s3").get_object(Bucket="bucket", Key="key")["Body"].read().decode()
    return {"body": body, "theirs": [name for name, value in event.items() if os.environ.get(name) == value]}
'''

def test_the_user_s_own_client(deploy, invoke, s3_client):
    s3_client.create_bucket(Bucket="bucket")
    s3_client.put_object(Bucket="bucket", Key="key", Body=b"body")
    answer = invoke(deploy(CODE), %(theirs)r)
    if answer.payload != {"body": "body", "theirs": []}:  # there are no assertions with PYTHONOPTIMIZE
        pytest.fail(str(answer))
"""
# Step Functions are a process of their own, too.
STATES = """
def test_state_machines(states_client):
    assert states_client.list_state_machines()["stateMachines"] == []
"""
NO_NAMESPACES = """
from slslab.host.namespaces import Isolation
from slslab.lambda_ import process_sandbox

process_sandbox.namespaces = lambda *_: Isolation("", False, ("none are allowed here",))
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with homes, modules and an empty directory."""
    contents = {
        "credentials/.aws/credentials": "no section\n",
        "config/.aws/config": "[profile\n",
        "company/.aws/config": f"[default]\nregion = eu-central-1\nrole_arn = x\nendpoint_url = {NOWHERE}\n",
        "models/.aws/models/lambda/2015-03-31/service-2.json": "{",
        "modules/handlers.py": "raise RuntimeError('a module of the user')\n",
        "modules/app.py": "raise RuntimeError('a module of the user')\n",
        "work/random.py": "raise RuntimeError('a file of the user')\n",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "a directory").mkdir()
    return tmp_path


def own(command: Sequence[str], directory: Path, variables: Mapping[str, str]) -> commands.Done:
    """Run a command as a user's shell does."""
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [program, *command[1:]], cwd=directory, env=variables, capture_output=True, encoding="latin-1", check=False
    )
    return commands.Done(done.returncode, done.stdout, done.stderr)


def run(execute: Execute, directory: Path, variables: Mapping[str, str], _theirs: Mapping[str, str]) -> None:
    command = ["slslab", "run", "allreduce", "--workers", "1", "--batches", "1", "--no-evaluation", "--out", "run"]
    command += ["--record", "together"]
    done = execute(command, directory, variables)
    assert done.code == 0, f"{done.out}\n{done.err}"
    document = json.loads((directory / "run" / "run.json").read_text())
    assert (document["status"], document["updates"]) == ("done", 1), done
    assert list((directory / "run").glob("*.html")), done


def up(execute: Execute, directory: Path, variables: Mapping[str, str], _theirs: Mapping[str, str]) -> None:
    with service(execute, directory, variables) as printed:
        status = execute(["slslab", "status", "--json"], directory, variables).document
        assert all(service["healthy"] for service in status["services"]), status
        create_function(printed)


@contextmanager
def service(execute: Execute, directory: Path, variables: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A service in the background, and the variables with which programs find it."""
    ports = [word for name in ("--port", "--s3-port", "--edge-port") for word in (name, "0")]
    started = execute(["slslab", "up", "--detach", *ports], directory, variables)
    assert started.code == 0, started
    try:
        yield execute(["slslab", "env", "--json"], directory, variables).document["variables"]
    finally:
        assert execute(["slslab", "down"], directory, variables).code == 0


def create_function(printed: Mapping[str, str]) -> None:
    """Create a function from code in a bucket, which the service gets by a client of its own."""
    pair = Pair(printed["AWS_ACCESS_KEY_ID"], printed["AWS_SECRET_ACCESS_KEY"])
    with (
        closing(aws_client("s3", printed["AWS_ENDPOINT_URL_S3"], pair)) as s3,
        closing(aws_client("lambda", printed["AWS_ENDPOINT_URL_LAMBDA"], pair)) as functions,
    ):
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="code.zip", Body=packaged("def handler(event, context): ..."))
        code = {"S3Bucket": "bucket", "S3Key": "code.zip"}
        functions.create_function(
            FunctionName="function", Runtime="python3.11", Handler="app.handler", Role=ROLE, Code=code
        )


def plugin(
    execute: Execute,
    directory: Path,
    variables: Mapping[str, str],
    theirs: Mapping[str, str],
    more: str = "",
) -> None:
    (directory / "test_it.py").write_text(PLUGIN % {"theirs": theirs} + more)
    done = execute(
        ["pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={directory}", "test_it.py"], directory, variables
    )
    assert done.code == 0, f"{done.out}\n{done.err}"


def user(files: Path, setting: Setting) -> tuple[dict[str, str], dict[str, str]]:
    """The environment of a user who has this setting and nothing else for AWS and slslab; and the setting alone."""
    theirs = {
        name: str(files / value) if isinstance(value, Path) else value
        for name, value in setting.items()
        if value is not None
    }
    variables = {
        **{name: value for name, value in os.environ.items() if not FOREIGN.fullmatch(name)},
        "SLSLAB_STATE": str(files / "state"),
        "CUDA_VISIBLE_DEVICES": "",
        # A page's library of charts takes two seconds to make.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        **theirs,
    }
    return {name: value for name, value in variables.items() if setting.get(name, "") is not None}, theirs


def each(execute: Execute, files: Path, setting: Setting, *without: str, work: str = "") -> None:
    """Run the commands with this setting, all at once because they mostly wait; an error names the ones that fail."""
    variables, theirs = user(files, setting)
    with ThreadPoolExecutor() as pool:
        going = {}
        for command in (run, up, plugin):
            if command.__name__ not in without:
                directory = files / (work or command.__name__)
                directory.mkdir(exist_ok=True)
                going[command.__name__] = pool.submit(command, execute, directory, variables, theirs)
    broken = {name: error for name, future in going.items() if (error := future.exception())}
    if broken:
        raise BaseExceptionGroup(f"broken: {', '.join(broken)}", list(broken.values()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", AT_USE)
def test_a_setting_alone(files: Path, name: str) -> None:
    each(commands.forked, files, AT_USE[name])


# Left out: a run without docstrings has no page, as altair needs them; pytest prints on its own, and not slslab in it;
# for Python, a locale that is not installed is C; models are read by an emulator, which a run has as the plugin has it.
WITHOUT = {
    "~/.aws/models": ["run"],
    "PYTHONOPTIMIZE": ["run"],
    "PYTHONIOENCODING": ["plugin"],
    "LC_ALL that is not installed": ["run"],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", AT_START)
def test_a_setting_of_interpreters_alone(files: Path, name: str) -> None:
    each(own, files, AT_START[name], *WITHOUT.get(name, []))


@pytest.mark.exhaustive
def test_a_file_in_the_working_directory_that_is_called_as_a_module_of_python_s_own(files: Path) -> None:
    """All settings at once, below, are tried in that directory, too."""
    each(own, files, {}, work="work")


def test_a_run_with_all_at_once(files: Path) -> None:
    run(own, files / "work", *user(files, ALL))


def test_a_service_with_all_at_once(files: Path) -> None:
    variables, theirs = user(files, ALL)
    with service(own, files / "work", variables) as printed:
        status = own(["slslab", "status", "--json"], files / "work", variables).document
        assert all(service["healthy"] for service in status["services"]), status
        create_function(printed)
        # The user's own client does as it always does: told to take the variables of the service, it finds them.
        asking = {name: value for name, value in variables.items() if name not in theirs}
        asking |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, **printed}
        listed = own(["aws", "lambda", "list-functions", "--query", "Functions[].FunctionName"], files, asking)
        assert listed.document == ["function"]


@pytest.mark.parametrize("isolate", [True, False])
def test_the_plugin_with_all_at_once(files: Path, isolate: bool) -> None:
    plugin(own, files / "work", *user(files, ALL), STATES if isolate else NO_NAMESPACES)

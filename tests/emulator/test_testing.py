"""The pytest plugin, used as a stranger would: docs/testing.md is run as it stands."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError
from tests.commands import Done, forked, in_a_shell

from slslab import Emulator
from slslab.errors import RequestError
from slslab.run.bill import Bill
from slslab.run.records import InvocationRecord
from slslab.testing import FunctionFailed, create_function

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
DOCS, README = ROOT / "docs" / "testing.md", ROOT / "README.md"
PIPELINES: dict[str, Callable[[Any], list[str]]] = {
    ".github/workflows/functions.yml": lambda of: [
        step["run"] for step in of["jobs"]["functions"]["steps"] if "run" in step
    ],
    ".gitlab-ci.yml": lambda of: list(of["functions"]["script"]),
}


def written(directory: Path) -> dict[str, str]:
    """The code blocks of the page that begin with a file's name, as files, but the one that needs an engine."""
    blocks = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    blocks = [(name, text) for name, text in blocks if name != "test_in_a_container.py"]
    for name, text in blocks:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return dict(blocks)


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter in a directory."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )


def session(directory: Path, *arguments: str) -> Done:
    """Run pytest in a directory."""
    return forked(("pytest", "-p", "no:cacheprovider", *arguments), directory, dict(os.environ))


def test_the_page_of_the_documentation_runs(tmp_path: Path) -> None:
    assert written(tmp_path).keys() == {*PIPELINES, "handler.py", "test_handler.py", "service.py", "dearest.py"}
    tests = session(tmp_path)
    assert "1 passed" in tests.out, tests.out + tests.err
    service = run(tmp_path, "service.py")
    assert service.stdout.strip() == "10", service.stderr


def test_the_documented_pipelines_pass_and_fail_by_cost(tmp_path: Path) -> None:
    """Both run the same commands."""
    files = written(tmp_path)
    (install, *commands), other = (steps(yaml.safe_load(files[file])) for file, steps in PIPELINES.items())
    assert other == [install, *commands]
    assert install == 'pip install pytest "$(echo wheels/slslab-*.whl)[report]"'
    *others, gate = commands
    assert [command.split()[0] for command in commands] == ["slslab", "pytest", "python"]
    variables = in_a_shell()

    def shell(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )

    for command in (*others, gate):
        done = shell(command)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "costs.html").stat().st_size > 10_000
    assert "test_handler.py::test_it_adds" in run(tmp_path, "dearest.py").stdout
    assert "0.01" in gate
    done = shell(gate.replace("0.01", "0.0000001"))
    assert (done.returncode, done.stderr[:15]) == (1, "The tests cost ")


def test_a_costly_test_fails_with_the_lines_of_its_bill(tmp_path: Path) -> None:
    written(tmp_path)
    test = (tmp_path / "test_handler.py").read_text()
    (tmp_path / "test_handler.py").write_text(test.replace('"0.00001"', '"0.0000001"'))
    done = session(tmp_path)
    assert done.code == 1
    costs = r"On Lambda the invocations cost 0\.0000\d+ to 0\.0000\d+ USD\. The upper end isn't below 0\.0000001\."
    assert re.search(costs, done.out)
    assert "To measure it, run: slslab calibrate --processor" in done.out
    assert re.search(r"As this host metered them, they cost 0\.0000\d+ USD:", done.out)
    assert "Lambda requests: 1 request = 0.0000002" in done.out


def test_the_readmes_test_passes_with_a_directory_named_in_text(tmp_path: Path) -> None:
    written(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "test_readme.py").write_text(block.replace("DIRECTORY", "."))
    done = session(tmp_path, "test_readme.py")
    assert "1 passed" in done.out, done.out + done.err


def test_a_directory_is_used_in_place_and_only_what_was_deployed(
    lambda_client: Any, deploy: Callable[..., str], invoke: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "link").symlink_to("code")
    module = tmp_path / "code" / "app.py"
    module.write_text("def handler(event, context):\n    return 'as deployed'\n")
    name = deploy(tmp_path / "link")
    module.write_text("def handler(event, context):\n    return 'in place'\n")
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


@pytest.mark.parametrize(
    ("place", "refusal"), [("none", "{}/none doesn't exist."), ("app.py", "{}/app.py isn't a directory.")]
)
def test_code_that_is_not_there_is_refused(
    place: str, refusal: str, lambda_client: Any, deploy: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "app.py").touch()
    with pytest.raises(RequestError, match=re.escape(refusal.format(tmp_path))) as refused:
        deploy(tmp_path / place)
    assert refused.value.__notes__[0].startswith("Hint: ")
    with pytest.raises(RequestError, match=r"/no/directory doesn't exist"):
        deploy("no/directory")
    assert lambda_client.list_functions()["Functions"] == []


def test_a_handler_may_be_in_a_package_or_in_one_without_init(
    deploy: Callable[..., str], invoke: Callable[..., Any], tmp_path: Path
) -> None:
    source = "def handler(event, context):\n    return __name__\n"
    for package in ("package", "namespace"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "app.py").write_text(source)
    (tmp_path / "package" / "__init__.py").touch()
    for handler in ("package.app.handler", "namespace/app.handler"):
        assert invoke(deploy(tmp_path, Handler=handler)).payload == handler.removesuffix(".handler").replace("/", ".")


def test_a_failed_invocation_fails_the_test_with_what_the_function_said(tmp_path: Path) -> None:
    """Its error, its traceback and its log, and no line of the plugin's own."""
    written(tmp_path)
    handler = tmp_path / "handler.py"
    handler.write_text(handler.read_text().replace("    return", "    print('so far')\n    return"))
    test = tmp_path / "test_handler.py"
    test.write_text(test.read_text().replace("[1, 2, 3]", "[1, None]"))
    done = session(tmp_path)
    said = [line.removeprefix("E").strip() for line in done.out.splitlines() if line.startswith("E ")]
    failure = "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'"
    assert said[0] == f"slslab.testing.FunctionFailed: {tmp_path.name}: {failure}", done.out + done.err
    assert said[1] == "Traceback of the function:"
    assert 'File "/var/task/handler.py", line 3, in handler' in said
    log = said[said.index("The end of its log:") :]
    assert "so far" in log
    assert log[-1].startswith("REPORT RequestId: ")
    assert "slslab/testing.py" not in done.out


def test_an_invocation_that_may_fail_returns_its_error(deploy: Callable[..., str], invoke: Callable[..., Any]) -> None:
    name = deploy("import time\n\ndef handler(event, context):\n    time.sleep(event)\n", Timeout=1)
    answer = invoke(name, 2, check=False)
    assert (answer.error, answer.payload["errorType"]) == ("Unhandled", "Sandbox.Timedout")
    with pytest.raises(FunctionFailed, match=rf"^{name}: Sandbox.Timedout: RequestId: .* timed out after") as failed:
        invoke(name, 2)
    assert "Traceback" not in str(failed.value)
    assert failed.value.answer.payload["errorType"] == "Sandbox.Timedout"


def test_requests_to_s3_cost_what_they_take_on_lambda(
    emulator: Emulator,
    s3_client: Any,
    deploy: Callable[..., str],
    invoke: Callable[..., Any],
    assert_cost_below: Callable[..., None],
    bill: Callable[[], Bill],
    invocations: Sequence[InvocationRecord],
) -> None:
    """Twenty gets take at least half a second of 10 GB there, so more than 0.00008 USD, whatever they took here."""
    s3_client.create_bucket(Bucket="bucket")
    s3_client.put_object(Bucket="bucket", Key="key", Body=b"x")
    name = deploy(
        """
        import boto3

        s3 = boto3.client("s3")

        def handler(event, context):
            for _ in range(20):
                s3.get_object(Bucket="bucket", Key="key")["Body"].read()
        """,
        MemorySize=10240,
    )
    invoke(name)
    assert_cost_below("0.01", kind="interpreter")
    with pytest.raises(pytest.fail.Exception, match=r"The upper end isn't below 0\.00008") as failed:
        assert_cost_below("0.00008", kind="interpreter")
    assert "kind of work is unknown" not in str(failed.value)
    assert "S3 GET requests: 20 request" in str(failed.value)
    with pytest.raises(pytest.fail.Exception, match=r"The upper end isn't below 0\.00008") as failed:
        assert_cost_below("0.00008", kind="interpreter", lambda_only=True)
    assert "S3 GET requests" not in str(failed.value)
    assert {line.item: line.quantity for line in bill().lines}["S3 GET requests"] == 20
    (record,) = invocations
    with pytest.raises(RequestError, match=r"There is no kind of work 'python'"):
        assert_cost_below("0.01", kind="python")
    for amount in ("0.01 USD", "nan"):
        with pytest.raises(RequestError, match=f"'{amount}' is not an amount in USD"):
            assert_cost_below(amount)
    alone = emulator.predictor().predict(vars(record))
    assert alone is not None
    assert alone.duration_ms.low <= alone.duration_ms.value <= alone.duration_ms.high


SESSION = """
import pytest

@pytest.mark.parametrize("size", [256, 512])
def test_shared(deploy, invoke, size):
    name = deploy("def handler(event, context): return 1 / event", MemorySize=size, FunctionName="shared")
    for event in (1, 2, 0):
        invoke(name, event, check=False)

def test_own(deploy, invoke):
    invoke(deploy("def handler(event, context): return len(bytes(range(256)) * (1 << 20))"))

def test_none(deploy):
    deploy("")
"""


@pytest.mark.parametrize("processes", [0, 2])
def test_a_session_leaves_what_its_tests_and_functions_cost(tmp_path: Path, processes: int) -> None:
    """Also of several processes (pytest-xdist)."""
    (tmp_path / "test_session.py").write_text(SESSION)
    files = [f"--slslab-report={name}" for name in ("costs.html", "costs.json")]
    done = session(tmp_path, f"-n{processes}", *files)
    assert done.code == 0, done.out + done.err
    document = json.loads((tmp_path / "costs.json").read_text())
    assert (document["schema"], document["invocations"], document["warnings"]) == (2, 7, [])
    tests = {row["test"].partition("::")[2]: row for row in document["tests"]}
    assert {name: (row["invocations"], row["cold_starts"]) for name, row in tests.items()} == {
        "test_shared[256]": (3, 1),
        "test_shared[512]": (3, 1),
        "test_own": (1, 1),
    }
    assert tests["test_own"]["peak_memory_mb"] > 256 > tests["test_shared[256]"]["peak_memory_mb"]
    assert document["peak_memory_mb"] == tests["test_own"]["peak_memory_mb"]
    rows = [(row["function"], row["memory_mb"], row["invocations"], row["errors"]) for row in document["functions"]]
    assert rows == [("shared", 256, 3, 1), ("shared", 512, 3, 1), ("test_own", 1769, 1, 0)]
    total = Decimal(document["cost"]["total"])
    assert total == sum(Decimal(row["cost"]) for row in document["tests"])
    assert total == sum(Decimal(row["cost"]) for row in document["functions"]) > 0
    answer = document["answer"]
    assert answer.startswith("3 tests invoked 2 functions 7 times. On Lambda: 0.0")
    dearest = max(document["tests"], key=lambda row: Decimal(row["cost"]))["test"]
    assert answer.endswith(f"The most expensive test is {dearest}.")
    predicted = document["predicted"]
    assert predicted["cost"]["range"]["low"] < float(predicted["cost"]["total"]) < predicted["cost"]["range"]["high"]
    for rows in (document["tests"], document["functions"]):
        sums = [sum(row["predicted"]["billed_seconds"][end] for row in rows) for end in ("low", "value", "high")]
        assert sums == pytest.approx([predicted["billed_seconds"][end] for end in ("low", "value", "high")], abs=0.01)
    assert answer in done.out
    page = (tmp_path / "costs.html").read_text()
    assert f'<p class="answer">{answer}</p>' in page
    for row in (*document["tests"], *document["functions"]):
        assert f'<th scope="row">{row.get("test") or row["function"]}</th>' in page
        assert f"{row['peak_memory_mb']} MB" in page


def test_a_session_of_which_processes_crash_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_session.py").write_text(SESSION + "\n\ndef test_crash():\n    import os\n    os._exit(1)\n")
    session(tmp_path, "-n1", "--max-worker-restart=0", "--slslab-report=c.json")
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["warnings"] == ["The records of 1 of pytest-xdist's workers, which crashed, are missing."]


def test_a_session_that_is_killed_leaves_no_report_of_another(tmp_path: Path) -> None:
    (tmp_path / "test_session.py").write_text("def test_crash():\n    import os\n    os._exit(1)\n")
    (tmp_path / "c.json").write_text("another")
    assert session(tmp_path, "--slslab-report=c.json").code == 1
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["answer"] == "No test invoked a function."
    assert document["warnings"] == ["The session has not come to its end, or was killed."]


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("none/c.json", "none/c.json cannot be written: No such file or directory. Hint: choose another file.\n"),
        ("c.txt", "--slslab-report c.txt is neither HTML nor JSON. Hint: give FILE.html or FILE.json.\n"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_any_test(tmp_path: Path, name: str, refusal: str) -> None:
    (tmp_path / "test_session.py").write_text("def test_ran():\n    open('ran', 'w').close()\n")
    done = session(tmp_path, "--slslab-report", name)
    assert done.code == pytest.ExitCode.USAGE_ERROR
    assert done.err.strip().endswith(refusal.strip())
    assert done.err.startswith("ERROR: ")
    assert not (tmp_path / "ran").exists()


ENDS_EARLY = """
def test_fails(emulator):
    print(emulator.home)
    raise SystemExit

def test_uses_s3(s3_client):
    pass
"""


def test_a_session_that_ends_while_its_s3_server_starts_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_session.py").write_text(ENDS_EARLY)
    # Its threads and servers end as the interpreter does, so this needs an interpreter of its own.
    done = run(tmp_path, "-m", "pytest", "-x", "-p", "no:cacheprovider")
    assert "1 failed in" in done.stdout, done.stdout + done.stderr
    found = re.search(r"^/\S*slslab-\S+$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert not Path(found[0]).exists()


def test_an_s3_server_that_no_test_names_starts_when_it_is_asked_for(tmp_path: Path) -> None:
    source = (
        "def test_asks(request):\n    assert request.getfixturevalue('s3_client').list_buckets()['Buckets'] == []\n"
    )
    (tmp_path / "test_session.py").write_text(source)
    done = session(tmp_path)
    assert (done.code, "1 passed" in done.out) == (0, True), done.out + done.err

"""`slslab tune`, and `slslab ask memory up`: a function of a running service, and of its record."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import commands

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.testing import create_function

pytestmark = pytest.mark.server

CODE = """
    import hashlib
    def handler(event, context):
        data = b""
        for _ in range(event["rounds"]):
            data = hashlib.sha256(data).digest()
        return data.hex()
"""
PAYLOADS = ("--payload", '3:{"rounds": 2000}', "--payload", "1:@large.json")
SIZES = ("--memory", "512,1769,10240")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tune")
    (directory / "large.json").write_text('{"rounds": 8000}')
    return directory


@pytest.fixture(scope="module")
def variables(home: Path) -> dict[str, str]:
    return commands.state_in(home)


@pytest.fixture(scope="module")
def client(home: Path, variables: dict[str, str]) -> Iterator[Any]:
    """boto3's client of a service with two functions."""
    options = ("--port", "0", "--s3-port", "0", "--edge-port", "0", "--tensor-databases", "0", "--queue", "embedded")
    started = commands.slslab("up", "--detach", *options, "--json", variables=variables, directory=home).document
    keys = commands.slslab("env", "--json", variables=variables).document["variables"]
    pair = Pair.of(keys)
    assert pair is not None
    found = aws_client("lambda", started["endpoints"]["lambda"], pair)
    for name in ("hash", "other"):
        create_function(found, name, CODE, MemorySize=512)
    yield found
    found.close()
    assert commands.slslab("down", variables=variables).code == 0
    os.waitpid(started["pid"], 0)


def memory_mb(client: Any, function: str = "hash") -> int:
    return int(client.get_function_configuration(FunctionName=function)["MemorySize"])


def test_it_is_tuned_once_and_then_known(client: Any, home: Path, variables: dict[str, str]) -> None:
    done = commands.slslab("tune", "hash", *PAYLOADS, *SIZES, "--json", variables=variables, directory=home)
    document = done.document
    assert "512 MB: 20 of 20" in done.err
    assert [payload["weight"] for payload in document["payloads"]] == [0.75, 0.25]
    rows = {row["memory_mb"]: row for row in document["sizes"]}
    assert rows[512]["basis"] == "measured"
    assert rows[512]["here"]["cold_starts"] == 5
    assert rows[512]["cold"]["cost"]["value"] > rows[512]["cost"]["value"]
    assert 5 <= rows[512]["here"]["rounds"] <= 20
    assert document["memory"] in rows
    assert document["predicted"]["status"] == "modelled"
    assert float(document["predicted"]["cost"]["total"]) > 0
    assert memory_mb(client) == 512
    # The second time asks nothing of the function.
    again = commands.slslab("tune", "hash", *PAYLOADS, *SIZES, "--json", variables=variables, directory=home).document
    assert again["invocations"] == 0
    assert again["used_before"] > 0
    assert again["answers"] == document["answers"]
    assert [row.get("cost") for row in again["sizes"]] == [row.get("cost") for row in document["sizes"]]
    # Another payload, or another setting, is measured.
    other = ("--payload", '{"rounds": 10}', "--memory", "512")
    assert commands.slslab("tune", "hash", *other, "--json", variables=variables).document["invocations"] > 0
    client.update_function_configuration(FunctionName="hash", Timeout=9)
    assert commands.slslab("tune", "hash", *other, "--json", variables=variables).document["invocations"] > 0


def test_the_page_and_the_best_size(client: Any, home: Path, variables: dict[str, str]) -> None:
    words = ("tune", "other", "--payload", '{"rounds": 1000}', *SIZES, "--goal", "fastest")
    done = commands.slslab(*words, "--apply", "--html", "page.html", variables=variables, directory=home)
    assert done.code == 0, done.err
    assert "Fastest on Lambda" in done.out
    assert "Which memory size for other?" in (home / "page.html").read_text()
    assert f"{memory_mb(client, 'other'):,} MB" in done.out.splitlines()[0]


def test_the_record_answers_without_invoking(client: Any, variables: dict[str, str]) -> None:
    """A function that nothing has tuned."""
    create_function(client, "recorded", CODE, MemorySize=512)
    for _ in range(4):
        client.invoke(FunctionName="recorded", Payload=json.dumps({"rounds": 1000}).encode())["Payload"].read()
    before = commands.slslab("show", "up", "--json", variables=variables).document["invocations"]
    words = ("up", "--function", "recorded", "--memory", "512,1769", "--json")
    document = commands.slslab("ask", "memory", *words, variables=variables).document
    assert [row["basis"] for row in document["sizes"]] == ["measured", "modelled"]
    assert document["sizes"][0]["here"]["rounds"] == 3
    late = commands.slslab("ask", "cheapest", *words, "--deadline", "0.000001", variables=variables)
    assert (late.code, late.printed["memory"]) == (1, None)
    assert commands.slslab("ask", "cheapest", *words, "--deadline", "9", variables=variables).document["memory"] == 512
    after = commands.slslab("show", "up", "--json", variables=variables).document["invocations"]
    assert after == before
    several = commands.slslab("ask", "memory", "up", variables=variables)
    assert several.code == 2
    assert "Hint: name one: --function NAME." in several.err


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("tune", "nothing"), "Function not found", "deployed are hash"),
        (("tune", "hash", "--payload", "{x"), "--payload {x is not JSON", "put JSON in quotes"),
        (("tune", "hash", "--payload", "@nothing.json"), "nothing.json can't be read", "name a file"),
        (("tune", "hash", "--payload", "-1:{}"), "An event has the weight -1.", "give it one above 0"),
        (("tune", "hash", "--payload", "{}", "--memory", "512"), "it failed: KeyError: 'rounds'", "give an event"),
        (("ask", "memory", "up", "--on", "local"), "--on does not apply to `up`", "leave it out"),
        (("ask", "memory", "up", "--network", "this-host"), "--network does not apply to `up`", "leave it out"),
    ],
)
@pytest.mark.usefixtures("client")
def test_what_is_wrong(words: tuple[str, ...], error: str, hint: str, variables: dict[str, str]) -> None:
    done = commands.slslab(*words, variables=variables)
    assert done.code == 2
    assert error in done.err
    assert f"Hint: {hint}" in done.err


def test_a_version_has_its_size_for_good(client: Any, variables: dict[str, str]) -> None:
    client.publish_version(FunctionName="hash")
    done = commands.slslab("tune", "hash:1", variables=variables)
    assert (done.code, "hash:1 is a version" in done.err) == (2, True)


def test_without_a_service(tmp_path: Path) -> None:
    done = commands.slslab("tune", "hash", variables=commands.state_in(tmp_path))
    assert done.code == 2
    assert "slslab is not up." in done.err


def test_a_run_has_no_function(tmp_path: Path) -> None:
    run = Path(__file__).parents[3] / "results" / "atlas" / "lenet-allreduce"
    done = commands.slslab("ask", "memory", run, "--function", "hash", variables={"SLSLAB_RUNS": str(tmp_path)})
    assert (done.code, "are for `up`" in done.err) == (2, True)

"""`slslab serve` over HTTP: pages of runs that begin, grow, end and die while somebody looks at them."""

import asyncio
import base64
import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import psutil
import pytest
import uvicorn
from tests.lab.pages.live.client import WAIT_S, Server, serving
from tests.lab.pages.live.growing import PLAN, TOTAL, Growing, half
from tests.lab.replay.recordings import TRACES

from slslab.cli.root import root
from slslab.errors import RequestError
from slslab.run.bill import load_book
from slslab.run.directory import DOCUMENT, RunDirectory
from slslab_lab.pages.live.app import Pages
from slslab_lab.pages.live.changes import Changes
from slslab_lab.pages.live.server import HOST, listening, prepare
from slslab_lab.pages.live.views import Views

pytestmark = pytest.mark.server

RUN = f"/runs/{PLAN.run}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("serving") / "runs") as found:
        yield found


@pytest.fixture
def growing(server: Server) -> Iterator[Growing]:
    """A running run in the server's folder."""
    run = Growing(server.folder)
    try:
        yield run
    finally:
        run.end()
        shutil.rmtree(run.directory.path)


def test_a_run_is_followed_from_its_beginning_to_its_end(server: Server) -> None:
    with server.events("/events") as listed:
        assert next(listed) == ""
        assert "There are no runs yet" in server.get("/list").text
        run = Growing(server.folder)
        next(listed)
        assert f'<a href="{RUN}">{PLAN.run}</a>' in server.get("/list").text
    with server.events(f"{RUN}/events") as told:
        assert next(told) == "running"
        page = server.get(RUN)
        assert f'data-live="{RUN}/content" data-events="{RUN}/events"' in page.text
        run.append(*half())
        assert next(told) == "running"
        content = server.get(f"{RUN}/content").text
        # 950 MB of a limit of 1,024 MB, and the bill by hand.
        for text in (
            "On AWS Lambda: not modelled. The run hasn&#39;t finished; it is modelled at its end.",
            TOTAL,
            "The price of this host&#39;s seconds is the one so far",
            "950 MB",
            "Running invocations",
            "worker 1",
        ):
            assert text in content, text
        listed_now = server.get("/list").text
        assert "0.00007542 USD so far" in listed_now
        # The end, as a command makes it.
        document = {**json.loads((TRACES / "scatterreduce" / "run.json").read_text()), "run": PLAN.run}
        run.directory.write(DOCUMENT, document)
        while (said := next(told)) == "running":
            pass
        assert said == "done"
        assert list(told) == []
    run.end()
    page = server.get(RUN)
    assert ("data-live" not in page.text, "s-done" in page.text) == (True, True)
    assert "so far" not in server.get("/list").text
    shutil.rmtree(run.directory.path)


def test_a_run_whose_command_is_killed_is_told_to_be_interrupted(server: Server) -> None:
    path = server.folder / "killed"
    command = f"""
import sys, time
from pathlib import Path
from tests.lab.pages.live.client import WAIT_S, Server, serving
from tests.lab.pages.live.growing import PLAN, half
from slslab.run.directory import RunDirectory
from slslab.run.log import TraceWriter
directory = RunDirectory.create(Path({str(path)!r}))
directory.lock()
directory.write_plan(PLAN.to_document() | {{"run": "killed"}})
writer = TraceWriter(directory.trace_log, "killed")
for record in half():
    writer.write(record)
print("up", flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", command], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            with server.events("/runs/killed/events") as told:
                assert next(told) == "running"
                process.kill()
                said = [status for status in told if status != "running"]
                assert said == ["interrupted"]
        finally:
            process.kill()
    page = server.get("/runs/killed").text
    assert "The command was killed before the run ended" in page
    assert ">killed</a>" in server.get("/").text
    shutil.rmtree(path)


@pytest.mark.usefixtures("growing")
def test_runs_are_compared_from_the_list(server: Server) -> None:
    names = ("allreduce", "scatterreduce")
    for name in names:
        shutil.copytree(TRACES / name, server.folder / name)
    ids = [RunDirectory(server.folder / name).id for name in names]
    listed = server.get("/")
    assert '<form action="/compare">' in listed.text
    assert "form-action 'self'" in listed.text.partition("<style>")[0]
    offered = [each for each in (*ids, PLAN.run) if f'name="run" value="{each}"' in listed.text]
    assert offered == ids, "a running one can't be compared"
    page = server.get(f"/compare?run={ids[0]}&run={ids[1]}")
    assert page.status == 200
    assert "<h1>AllReduce and ScatterReduce</h1>" in page.text
    for wrong in ("", f"?run={ids[0]}", f"?run={ids[0]}&run={PLAN.run}", f"?run={ids[0]}&run=nothing"):
        answer = server.get(f"/compare{wrong}")
        assert answer.status == 400
        assert "<h1>A comparison needs two runs or more that have ended.</h1>" in answer.text
    for name in names:
        shutil.rmtree(server.folder / name)


def test_what_there_is_not_gets_one_sentence(server: Server) -> None:
    for path in ("/runs/nothing", "/runs/nothing/content", "/runs/nothing/events"):
        answer = server.get(path)
        assert (answer.status, "<h1>There is no run nothing.</h1>" in answer.text) == (404, True)
    (server.folder.parent / "secret").mkdir(exist_ok=True)
    shutil.copytree(TRACES / "scatterreduce", server.folder.parent / "outside", dirs_exist_ok=True)
    for path in (
        "/nothing",
        "/runs/",
        "/runs/..",
        "/runs/../outside",
        "/runs/..%2Foutside",
        "/runs/%2e%2e%2foutside",
        f"/runs/{server.folder.parent}/outside",
        "/runs/last",
    ):
        answer = server.get(path)
        assert answer.status == 404, path
        assert "Traceback" not in answer.text
    assert server.get("/", method="POST").status == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "localhost@evil"])
def test_another_hosts_name_is_refused(server: Server, host: str) -> None:
    answer = server.get("/", host=host)
    assert (answer.status, "Runs" in answer.text) == (403, False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:8765"])
def test_this_hosts_names_are_answered(server: Server, host: str) -> None:
    assert server.get("/", host=host).status == 200


# Every kind of page and stream, and what there is not.
PATHS = ("/", "/list", "/events", RUN, f"{RUN}/content", f"{RUN}/events", "/no")


@pytest.fixture(scope="module")
def others_cookie(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The cookie of a server on another port under this one's name, as another start on this port would set it."""
    with serving(tmp_path_factory.mktemp("other")) as other:
        name, _, value = other.cookie.partition("=")
        assert name == f"slslab-{other.port}"
        return f"slslab-{server.port}={value}"


def test_without_the_token_nothing_is_shown(server: Server, growing: Growing, others_cookie: str) -> None:
    name, _, value = server.cookie.partition("=")
    token = server.url.partition("=")[2]
    queries = (
        "",
        "?token=",
        "?token=wrong",
        f"?token={value}",
        f"?token={token[:-1]}",
        "?token=%C3%A9",
        f"?Token={token}",
    )
    cookies = ("", f"{name}=", f"{name}={token}", f"{name}=\xe9", f"slslab-1={value}", others_cookie)
    for path in PATHS:
        for query, cookie in [(query, "") for query in queries] + [("", cookie) for cookie in cookies]:
            answer = server.get(path + query, cookie=cookie)
            assert (answer.status, "set-cookie" in answer.headers) == (403, False), (path, query, cookie)
            assert "Open the address that slslab serve printed; it has a token." in answer.text
            assert "start it again" in answer.text
            for known in (growing.directory.path.name, str(server.folder), token, value):
                assert known not in answer.text
    assert server.get("/", method="POST", cookie="").status == 403


def test_the_token_is_exchanged_for_a_cookie(server: Server) -> None:
    token = server.url.partition("=")[2]
    assert server.url == f"http://{HOST}:{server.port}/?token={token}"
    assert len(token) == 43
    for path in (*PATHS, "/runs/a%3Fb%23c", "//evil.example/"):
        answer = server.get(f"{path}?token={token}", cookie="")
        assert (answer.status, answer.headers["location"]) == (303, f"http://{HOST}:{server.port}{path}")
        assert answer.headers["referrer-policy"] == "no-referrer"
        cookie, *attributes = answer.headers["set-cookie"].split("; ")
        assert cookie == server.cookie
        assert sorted(map(str.lower, attributes)) == ["httponly", "path=/", "samesite=strict"]
        assert token not in str(answer)
    assert server.get("/list", cookie=f"theirs=1; {server.cookie}; slslab-1=2").status == 200


def test_the_gate_is_before_the_token(server: Server) -> None:
    """As from a page of another site that has pointed its name at this host."""
    query = server.url.partition("/?")[2]
    answer = server.get(f"/?{query}", host=f"evil.example:{server.port}", cookie="")
    assert (answer.status, "set-cookie" in answer.headers, "not called" in answer.text) == (403, False, True)


def test_the_printed_address_is_opened_and_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"http://{HOST}:8765/?token={'x' * 200}"
    opened: list[str] = []
    monkeypatch.setattr("slslab_lab.pages.live.server.serve", lambda _folder, _port, ready: ready(address))
    monkeypatch.setattr(webbrowser, "open", opened.append)
    root.main(["serve", "--open", "--runs", str(tmp_path)], standalone_mode=False)
    assert capsys.readouterr().out == f"Runs are shown until Ctrl-C at {address}\n"
    assert opened == [address]


def test_pages_run_nothing_but_their_own_scripts(server: Server, growing: Growing) -> None:
    growing.directory.write_plan(PLAN.to_document() | {"model": "<script>alert(1)</script>"})
    odd = server.folder / "<img src=x onerror=alert(1)>&'\""
    odd.mkdir()
    (odd / "plan.toml").write_text("run = 5 = 6")
    for path in ("/", "/list", RUN):
        answer = server.get(path)
        assert answer.status == 200
        assert "<script>alert(1)" not in answer.text
        assert "<img src=x" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"] + answer.text.partition("<body>")[0]
    listed = server.get("/")
    [script] = re.findall("<script>(.*?)</script>", listed.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in unescape(listed.text.partition("<style>")[0])
    assert "unreadable" in listed.text
    assert "plan.toml is not a plan" in listed.text
    own = listed.text[listed.text.index("/runs/%3Cimg") :].split('"')[0]
    assert "is not a plan" in server.get(own).text
    shutil.rmtree(odd)


def test_ctrl_c_ends_it_with_all_who_listen(tmp_path: Path) -> None:
    run = Growing(tmp_path)
    try:
        with serving(tmp_path) as server, server.events("/events") as listed, server.events(f"{RUN}/events") as told:
            assert (next(listed), next(told)) == ("", "running")
            children = psutil.Process(server.process.pid).children(recursive=True)
            server.process.send_signal(signal.SIGINT)
            assert (list(listed), list(told)) == ([], [])
            assert server.process.wait(WAIT_S) == 0
            assert server.process.stderr is not None
            assert server.process.stderr.read() == ""
            assert not any(child.is_running() for child in children)
    finally:
        run.end()


def test_whoever_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    """In this process: streams of events end with their clients, and watching ends with its block."""

    async def look() -> None:
        changes = Changes(tmp_path)
        pages = Pages(Views(tmp_path, load_book("aws-us-east-1")), changes)
        with listening(0) as listener:
            application = pages.application("token", listener.getsockname()[1])
            config = uvicorn.Config(application, log_config=None, lifespan="off")
            server = uvicorn.Server(config)
            async with asyncio.timeout(WAIT_S), changes.watching():
                serving = asyncio.create_task(server._serve([listener]))
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                before = asyncio.all_tasks()
                writer.write(b"GET /?token=token HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.readuntil(b"set-cookie: ")
                cookie = await reader.readuntil(b";")
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\nCookie: " + cookie + b"\r\n\r\n")
                await reader.readuntil(b"event: changed")
                assert len(changes._subscribers) == 1
                writer.close()
                while changes._subscribers or asyncio.all_tasks() - before:
                    await asyncio.sleep(0.01)
                server.should_exit = True
                await serving
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(look())


def test_a_port_that_is_taken_and_a_folder_that_cannot_be(tmp_path: Path) -> None:
    with listening(0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(RequestError, match=f"Port {port} of 127.0.0.1 cannot be served"):
            listening(port)
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot be made"):
        prepare(tmp_path / "file" / "runs")


def test_a_folder_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="There is no folder"):
        root.main(["serve", "--port", "0", "--runs", str(tmp_path / "nowhere")], standalone_mode=False)
    assert not (tmp_path / "nowhere").exists()

"""Pages of other web sites in a real browser, which ask the ports of Lambda, Step Functions and the live pages."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.slslab.reports.live.client import serving
from tests.slslab.reports.live.growing import PLAN, Growing

from slslab.lambda_.emulator import Emulator
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab.testing import ROLE

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
CHROMIUM = shutil.which("chromium")
EVIL = "evil.example"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: tests/machines/browser/install installs it")

# Without a question beforehand (preflight) a page may send this to any address; an answer it may read only of its own.
ASK = """async ([url, body]) => {
    const how = body === null ? {} : {method: "POST", body, headers: {"Content-Type": "text/plain"}};
    const own = new URL(url).origin === location.origin;
    try { return (await (await fetch(url, own ? how : {...how, mode: "no-cors"})).text()); }
    catch (error) { return String(error); }
}"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[str]:
    """The address of another web site's page, on this host."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<h1>a page</h1>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()
        thread.join()


def test_no_page_of_another_site_lists_creates_or_reads(emulator: Emulator, foreign: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    emulator.packages.allow(secret)
    (secret / "key.py").write_text("SECRET = 'only its owner reads this'\n")
    settings = {"FunctionName": "theirs", "Runtime": "python3.11", "Role": ROLE, "Handler": "linecache.getlines"}
    create = json.dumps({**settings, "Code": {"S3Bucket": "hot-reload", "S3Key": str(secret)}})
    statuses: dict[str, list[int]] = {}
    with ExitStack() as stack:
        states = stack.enter_context(EmbeddedStateMachines(emulator.endpoint, emulator.keys, emulator.mark))
        live = stack.enter_context(serving(tmp_path / "runs"))
        asked = {
            f"{emulator.endpoint}/2015-03-31/functions": create,
            f"{emulator.endpoint}/2015-03-31/functions/": None,
            f"{states.endpoint}/": "{}",
            f"http://127.0.0.1:{live.port}/": None,
        }
        playwright = stack.enter_context(sync_api.sync_playwright())
        rebound = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", rebound])
        context = browser.new_context()
        # The browser knows the live pages: it has their cookie.
        assert context.new_page().goto(live.url).status == 200
        page = context.new_page()
        page.on("response", lambda response: statuses.setdefault(response.url, []).append(response.status))
        page.goto(foreign)
        for url, body in asked.items():
            assert page.evaluate(ASK, [url, body]) == "", "an answer that is not to be read"
        for url, body in asked.items():
            there = url.replace("127.0.0.1", EVIL)
            page.goto(there)
            assert "another web site" in page.content() or "not called" in page.content()
            assert "not called" in page.evaluate(ASK, [there, body])
        browser.close()
    assert set(statuses) == {foreign, *asked, *(url.replace("127.0.0.1", EVIL) for url in asked)}
    del statuses[foreign]
    assert {status for found in statuses.values() for status in found} == {403}
    client = emulator.client("lambda")
    assert client.list_functions()["Functions"] == []
    client.close()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A folder with a run that goes on."""
    run = Growing(tmp_path / "runs")
    yield tmp_path / "runs"
    run.end()


def test_no_page_of_another_site_leads_to_a_run(foreign: str, runs: Path) -> None:
    with serving(runs) as live, sync_api.sync_playwright() as playwright:
        rebound = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", rebound])
        context = browser.new_context()
        page = context.new_page()
        page.goto(live.url)
        page.wait_for_selector(f"text={PLAN.run}")
        there = f"http://127.0.0.1:{live.port}/runs/{PLAN.run}"
        # Other ports of a host are the same site, to whose pages' links a browser does give the cookie.
        for site, sent in ((foreign.replace("127.0.0.1", EVIL), False), (foreign, True)):
            for go in ("location.href = there", "document.body.append(a); a.click()"):
                page.goto(site)
                with page.expect_navigation(url=there) as followed:
                    page.evaluate(f"there => {{ const a = document.createElement('a'); a.href = there; {go} }}", there)
                assert followed.value.status == 403
                assert ("cookie" in followed.value.request.all_headers()) is sent
                assert "another web site" in page.content()
                assert PLAN.run not in page.content()
        assert page.goto(there).status == 200
        browser.close()

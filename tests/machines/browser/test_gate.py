"""Pages of other web sites in a real browser, which ask every port of a running service and of the live pages."""

import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.emulator.up.services import REQUESTS, Service, in_use
from tests.lab.pages.live.growing import PLAN

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
CHROMIUM = shutil.which("chromium")
WAIT_MS = 60_000
EVIL = "evil.example"
OPTIONS = [
    "--no-sandbox",
    f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
    # Other browsers have no protection of loopback, and users may waive Chromium's.
    "--disable-features=LocalNetworkAccessChecks",
]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: tests/machines/browser/install installs it")

# Returns method, address, status and text of all answers that the page may read, and the sockets that open.
READ = """async (requests) => {
    const read = requests.map(async ([method, url, headers, body]) => {
        const answer = await fetch(url, {method, headers, ...(method === "GET" ? {} : {body})});
        return [method, url, answer.status, await answer.text()];
    });
    for (const origin of new Set(requests.map(([, url]) => new URL(url).origin))) {
        const socket = new WebSocket(origin);
        read.push(new Promise((opened, failed) => {
            socket.onopen = () => opened(["GET", origin, 101, ""]);
            socket.onerror = failed;
        }));
    }
    return (await Promise.allSettled(read)).filter((one) => one.status === "fulfilled").map((one) => one.value);
}"""
# Sends what a page may send to any address without a question beforehand (preflight), though it may not read the
# answers: fetches, forms, and what it loads. Returns the events that it is told.
SEND = """async (requests) => {
    const told = [], waiting = [];
    const add = (name, more) => document.body.appendChild(Object.assign(document.createElement(name), more));
    for (const [method, url, headers, body] of requests) {
        if (method === "GET") {
            waiting.push(fetch(url, {mode: "no-cors"}));
            const events = new EventSource(url);
            events.onopen = events.onmessage = ({type, data}) => told.push([url, type, data]);
            waiting.push(new Promise((done) => { events.onerror = () => { events.close(); done(); }; }));
            add("img", {src: url});
            add("script", {src: url});
            add("link", {rel: "stylesheet", href: url});
            add("iframe", {src: url});
        } else {
            waiting.push(fetch(url, {method, body, mode: "no-cors"}));
            // As plain text a form sends NAME=VALUE.
            const [name, ...value] = body.split("="), target = add("iframe", {name: url + body}).name;
            const form = add("form", {method, action: url, target, enctype: headers["Content-Type"] ?? "text/plain"});
            form.append(Object.assign(document.createElement("input"), {name, value: value.join("=")}));
            form.submit();
        }
    }
    await Promise.allSettled(waiting);
    return told;
}"""
SENT = {"GET": 6, "POST": 2}
# Lambda, S3, Step Functions, all services', a Runtime API, the live pages.
# Databases and the queue speak no HTTP, and a browser drops their answers: that nothing was done there,
# `nothing_changed` tells.
FORBIDDING = 6

# Method, address, headers and body; method, address, status and text.
Request = tuple[str, str, dict[str, str], str]
Answer = tuple[str, str, int, str]


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[str]:
    """The address of another web site's page, on this host."""
    (tmp_path / "index.html").write_text("<h1>a page</h1>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with in_use(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_changed(service: Service) -> Iterator[None]:
    """Whatever a test tries, the service holds afterwards what it held before."""
    with service.unchanged():
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield launched
        launched.close()


@pytest.fixture
def context(browser: Any, service: Service) -> Iterator[Any]:
    """A browser that knows the live pages: it has their cookie. It takes any server's certificate."""
    with browser.new_context(ignore_https_errors=True) as made:
        made.set_default_timeout(WAIT_MS)
        assert made.new_page().goto(service.live.url).status == 200
        yield made


def port_of(service: Service, part: str) -> int:
    return urlsplit(service.described["endpoints"][part]).port or 0


def strange(origins: Iterable[str]) -> list[Request]:
    """What strangers send to a port, at each of these."""
    return [(method, origin + path, headers, body) for origin in origins for method, path, headers, body in REQUESTS]


def refusing(service: Service, answers: Iterable[Answer]) -> set[int]:
    """Check that all answers are refusals without a secret; returns the ports that have forbidden something."""
    forbidding = set()
    for method, url, status, text in answers:
        # 404: S3 says of a bucket to anybody that it is not there.
        assert status in (400, 403, 404, 405), (method, url, status, text)
        assert not any(secret in text for secret in service.secrets), (method, url)
        if status == 403:
            forbidding.add(urlsplit(url).port or 0)
    return forbidding


def test_a_page_of_another_site_gets_nothing_from_any_port(service: Service, context: Any, foreign: str) -> None:
    page = context.new_page()
    page.goto(foreign)
    sent = strange(f"http://127.0.0.1:{port}" for port in service.ports)
    assert refusing(service, page.evaluate(READ, sent)) == set()
    sent = [request for request in sent if request[0] in SENT]
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    with page.expect_event("request", lambda _: len(asked) == sum(SENT[method] for method, *_ in sent)):
        assert page.evaluate(SEND, sent) == []
    answered = [(request, answer.status) for request in asked if (answer := request.response())]
    assert len(refusing(service, [(one.method, one.url, status, "") for one, status in answered])) == FORBIDDING


def test_a_page_that_has_rebound_its_name_gets_nothing_from_any_port(service: Service, context: Any) -> None:
    answers = []
    for port in service.ports:
        page = context.new_page()
        there = f"http://{EVIL}:{port}"
        page.route(f"{there}/", lambda route: route.fulfill(body="<h1>a page</h1>", content_type="text/html"), times=1)
        page.goto(f"{there}/")
        answers += page.evaluate(READ, strange([there]))
        page.close()
    assert len(refusing(service, answers)) == FORBIDDING
    gated = {*(port_of(service, name) for name in ("lambda", "s3", "states")), service.live.port}
    for _, url, _, text in answers:
        port = urlsplit(url).port or 0
        assert port not in gated or "is not called" in text


def test_no_page_of_another_site_leads_to_a_run(service: Service, context: Any, foreign: str) -> None:
    page = context.new_page()
    page.goto(service.live.url)
    page.wait_for_selector(f"text={PLAN.run}")
    there = f"http://127.0.0.1:{service.live.port}/runs/{PLAN.run}"
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

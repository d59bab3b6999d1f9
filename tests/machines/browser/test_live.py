"""Pages of `slslab serve` in a real browser: they follow a run without being loaded again, and need the token."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.pages.live.client import serving
from tests.lab.pages.live.growing import PLAN, Growing, half

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
CHROMIUM = shutil.which("chromium")
WAIT_MS = 60_000
REFUSAL = "Open the address that slslab serve printed; it has a token."

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: tests/machines/browser/install installs it")


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A folder with a running run."""
    run = Growing(tmp_path / "runs")
    yield tmp_path / "runs"
    run.end()


def test_pages_follow_a_run_without_being_loaded_again(tmp_path: Path) -> None:
    troubles: list[str] = []
    with serving(tmp_path) as server, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context()
        listed, page = context.new_page(), context.new_page()
        for one in (listed, page):
            one.set_default_timeout(WAIT_MS)
            one.on("pageerror", lambda error: troubles.append(str(error)))
            one.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        address = f"http://127.0.0.1:{server.port}"
        listed.goto(server.url)
        assert listed.url == f"{address}/"
        listed.evaluate("window.loaded = 'once'")
        run = Growing(tmp_path)
        try:
            listed.wait_for_selector(f"text={PLAN.run}")
            page.goto(address + listed.locator("tbody a").get_attribute("href"))
            page.evaluate("window.loaded = 'once'")
            assert page.locator("#card-now").count() == 0
            run.append(*half())
            page.wait_for_selector("#card-now >> text=950 MB")
            page.wait_for_selector("#timeline svg")
            details = page.locator("#card-phases details")
            details.locator("summary").click()
            run.append(*(record | {"invocation": "i2", "worker": 1} for record in half() if record.get("loss") == 4.0))
            page.wait_for_selector("text=between invocations")
            assert details.get_attribute("open") is not None, "what somebody has opened stays open"
            listed.wait_for_selector("text=so far")
        finally:
            run.end()
        # Its command is gone without a document: it was killed.
        page.wait_for_selector("text=The command was killed")
        listed.wait_for_selector("text=interrupted")
        assert [one.evaluate("window.loaded") for one in (listed, page)] == ["once", "once"]
        browser.close()
    assert troubles == []


def test_the_printed_address_opens_the_pages_and_the_bare_one_does_not(runs: Path) -> None:
    troubles: list[str] = []
    with serving(runs) as server, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: troubles.append(message.text))
        address = f"http://127.0.0.1:{server.port}/"
        page.goto(address)
        assert page.inner_text("h1") == REFUSAL
        assert PLAN.run not in page.content()
        assert page.evaluate("document.styleSheets[0].cssRules.length") > 0, "its policy lets its own style through"
        page.goto(server.url)
        page.wait_for_selector(f"text={PLAN.run}")
        history = context.new_cdp_session(page).send("Page.getNavigationHistory")
        assert not any("token" in entry["url"] for entry in history["entries"])
        page.reload()
        page.wait_for_selector(f"text={PLAN.run}")
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
        assert page.evaluate("document.cookie") == ""
        browser.close()
    assert [text for text in troubles if "403" not in text] == []


def test_pages_of_a_server_that_was_started_again_ask_for_the_new_address(runs: Path) -> None:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context()
        listed, page = context.new_page(), context.new_page()
        with serving(runs) as server:
            listed.goto(server.url)
            page.goto(f"http://127.0.0.1:{server.port}/runs/{PLAN.run}")
            for one in (listed, page):
                one.set_default_timeout(WAIT_MS)
                one.wait_for_selector(f"text={PLAN.run}")
        with serving(runs, server.port) as again:
            for one in (listed, page):
                one.wait_for_selector(f"text={REFUSAL}")
            listed.goto(again.url)
            page.reload()
            for one in (listed, page):
                one.wait_for_selector(f"text={PLAN.run}")
        browser.close()

"""Pages of `slslab serve` in a real browser: they follow a run without being loaded again."""

import shutil
from pathlib import Path

import pytest
from tests.slslab.reports.live.client import serving
from tests.slslab.reports.live.growing import PLAN, Growing, half

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
CHROMIUM = shutil.which("chromium")
WAIT_MS = 60_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: tests/machines/browser/install installs it")


def test_pages_follow_a_run_without_being_loaded_again(tmp_path: Path) -> None:
    troubles: list[str] = []
    with serving(tmp_path) as server, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        listed, page = browser.new_page(), browser.new_page()
        for one in (listed, page):
            one.set_default_timeout(WAIT_MS)
            one.on("pageerror", lambda error: troubles.append(str(error)))
            one.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        address = f"http://127.0.0.1:{server.port}"
        listed.goto(address)
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

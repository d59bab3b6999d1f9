"""Pages in a real browser: on a phone and on a wide screen, light and dark.

Screenshots are left in $SLSLAB_ARTEFACTS, or else where pytest keeps temporary files (`-s` tells). Without Chromium
(tests/machines/browser/install) they are skipped.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.lab.pages.live.growing import PLAN, half, metered
from tests.lab.pages.reproduced import reproduction
from tests.lab.replay.recordings import TRACES

from slslab.predict.invocation import make_predictor
from slslab.predict.processor import UNANCHORED
from slslab.report.html.page import make_page
from slslab.report.sessions import session_document, session_page
from slslab.run.bill import load_book
from slslab.run.directory import RunDirectory
from slslab.run.run import Run
from slslab_lab.pages.comparison import describe_comparison
from slslab_lab.pages.live.underway import Now, describe
from slslab_lab.pages.reproduction import describe_reproduction
from slslab_lab.pages.run_page import describe_run, page_of
from slslab_lab.replay.modelled import model
from slslab_lab.replay.programs.recording import read_recording

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
CHROMIUM = shutil.which("chromium")
WIDTHS = (390, 1600)
SCHEMES = ("light", "dark")
UNIT = re.compile(r",\s(s|MB|USD|%|min|nats)$|^multiple of ")
# Of what is counted or named, and has no unit.
UNITLESS = {"epoch", "to worker", "from worker", "ours ÷ published"}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: tests/machines/browser/install installs it")

# What each chart shows: how many marks have an extent, its axes' titles, labels of one axis or texts of marks that
# overlap, and texts that are not all within.
CHARTS = """() => [...document.querySelectorAll(".chart")].filter((one) => one.clientWidth).map((chart) => {
  const marks = [...chart.querySelectorAll(".role-mark path, .role-mark line, .role-mark text")];
  const overlaps = [];
  for (const place of chart.querySelectorAll(".role-axis-label, .role-mark.mark-text")) {
    const boxes = [...place.querySelectorAll("text")]
      .filter((one) => one.getAttribute("opacity") !== "0" && one.textContent)
      .map((one) => [one.textContent, one.getBoundingClientRect()]);
    boxes.forEach(([text, a], place) => boxes.slice(place + 1).forEach(([other, b]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
        overlaps.push(`${text} / ${other}`);
    }));
  }
  return {
    id: chart.id,
    marks: marks.map((one) => one.getBoundingClientRect()).filter((box) => box.width + box.height > 0).length,
    titles: [...chart.querySelectorAll(".role-axis-title text")].map((one) =>
      [...(one.children.length ? one.children : [one])].map((line) => line.textContent).join(" ")),
    width: chart.querySelector("svg").getBoundingClientRect().width,
    room: chart.clientWidth,
    overlaps,
    cut: [...chart.querySelectorAll("text")].filter((one) => {
      const box = one.getBoundingClientRect(), room = chart.querySelector("svg").getBoundingClientRect();
      return box.left < room.left - 1 || box.right > room.right + 1 || box.bottom > room.bottom + 1;
    }).map((one) => one.textContent),
  };
})"""


@dataclass
class Visit:
    """A page that is open, with all that went wrong in it and all that it asked for."""

    page: Any
    troubles: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, browser: Any, file: Path, width: int, scheme: str = "light") -> "Visit":
        """Open the file and wait until its charts are drawn."""
        visit = cls(browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme))
        visit.page.on("pageerror", lambda error: visit.troubles.append(str(error)))
        visit.page.on("console", lambda message: visit.troubles.append(f"{message.type}: {message.text}"))
        visit.page.on("request", lambda request: visit.requests.append(request.url))
        visit.page.goto(file.as_uri())
        visit.page.wait_for_function("document.documentElement.dataset.drawn", timeout=30_000)
        return visit

    def resize(self, width: int) -> None:
        """Make the window so wide, and wait until each chart is."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.wait_for_function(
            """() => [...document.querySelectorAll(".chart")].every(
                 (one) => Math.abs(one.querySelector("svg").getBoundingClientRect().width - one.clientWidth) < 6)"""
        )

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(self.page.evaluate("document.scrollingElement.scrollWidth - innerWidth"))

    def colours(self) -> tuple[str, str]:
        """Of the background, and of a chart's text."""
        found = self.page.evaluate(
            """() => [getComputedStyle(document.body).backgroundColor,
                      getComputedStyle(document.querySelector(".role-axis-title text")).fill]"""
        )
        return found[0], found[1]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Chromium has no sandbox for root.
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


def recording(name: str) -> Run:
    return Run(RunDirectory(TRACES / name))


def document(name: str) -> dict[str, Any]:
    return recording(name).summary()


def modelled(name: str) -> dict[str, Any]:
    """The document of a recording as a run of today leaves it: its model has other memory sizes."""
    return document(name) | {"lambda": model(read_recording(TRACES / name), load_book("aws-us-east-1"))}


def _running() -> str:
    """The page of a running run, at one moment."""
    header = {"record": "header", "run": PLAN.run, "clock": "c", "started": "2026-11-21T00:00:00+00:00"}
    at = Now(datetime(2026, 11, 21, 0, 1, tzinfo=UTC), 4_000_000_000)
    return page_of(describe(PLAN.run, PLAN.to_document(), [header, *half()], load_book("aws-us-east-1"), at))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind, as files."""
    names = ("allreduce", "scatterreduce")
    comparison = describe_comparison([document(name) for name in names])
    invoked = [("tests/test_app.py::test_one", metered(0, 1000, 2000.0, 40.0))]
    session = session_document(invoked, make_predictor(UNANCHORED, None, None), {})
    texts = {
        "run": page_of(recording("mobilenet-busy").replace(document=modelled("mobilenet-busy"))),
        "spirt": page_of(recording("spirt")),
        "mlless": page_of(recording("mlless")),
        "compare": make_page(comparison),
        "reproduction": make_page(describe_reproduction(reproduction())),
        "session": make_page(session_page(session)),
        "running": _running(),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go."""
    chosen = os.environ.get("SLSLAB_ARTEFACTS")
    folder = Path(chosen) if chosen else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"screenshots: {folder}")
    return folder


# Tables that are wider than their place.
WIDE_TABLES = """() => [...document.querySelectorAll(".scroll")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.getAttribute("aria-label"))"""


def check_charts(charts: list[dict[str, Any]]) -> None:
    """Each has marks and titles with units, and fills its place, in which all texts fit."""
    for chart in charts:
        assert chart["marks"] > 0, chart
        assert chart["titles"], chart
        assert all(UNIT.search(title) or title in UNITLESS for title in chart["titles"]), chart
        assert chart["overlaps"] == [], chart
        assert chart["cut"] == [], chart
        assert chart["width"] == pytest.approx(chart["room"], abs=6), "charts fill what they are given"


@pytest.mark.parametrize(
    ("name", "least"), [("run", 5), ("spirt", 5), ("mlless", 5), ("compare", 3), ("reproduction", 4)]
)
def test_a_page_fits_and_draws_at_both_widths_in_both_colour_schemes(
    name: str, least: int, browser: Any, pages: dict[str, Path], artefacts: Path
) -> None:
    visit = Visit.begin(browser, pages[name], WIDTHS[0])
    for width in WIDTHS:
        visit.resize(width)
        found = {}
        for scheme in SCHEMES:
            visit.page.emulate_media(color_scheme=scheme)
            found[scheme] = visit.colours()
            visit.page.screenshot(path=artefacts / f"{name}-{width}-{scheme}.png", full_page=True)
        assert all(light != dark for light, dark in zip(*(found[scheme] for scheme in SCHEMES), strict=True))
        charts = visit.page.evaluate(CHARTS)
        assert len(charts) >= least
        check_charts(charts)
        for button in visit.page.query_selector_all(".switch button"):
            button.click()
            visit.resize(width)
            assert button.get_attribute("aria-pressed") == "true"
            shown = [chart for chart in visit.page.evaluate(CHARTS) if chart["id"].startswith("timeline")]
            assert [chart["id"] for chart in shown] == [button.get_attribute("data-shows")]
            check_charts(shown)
        assert visit.overflow() <= 0
    assert visit.troubles == []
    assert visit.requests == [pages[name].as_uri()]
    visit.page.close()


@pytest.mark.parametrize("name", ["run", "spirt", "compare", "reproduction", "session", "running"])
def test_a_phone_shows_every_column_of_every_table(name: str, browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit.begin(browser, pages[name], WIDTHS[0])
    visit.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    visit.page.wait_for_function(f"() => ({WIDE_TABLES})().length === 0")
    stacked = visit.page.locator(".stacked td >> nth=0")
    shown = stacked.evaluate("(cell) => getComputedStyle(cell, '::before').content")
    assert shown.strip('"') == stacked.get_attribute("data-column") != ""
    # On a wide screen the same table has its columns again.
    visit.page.set_viewport_size({"width": WIDTHS[1], "height": 900})
    assert visit.page.locator("thead").first.is_visible()
    visit.page.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["run", "spirt", "compare", "reproduction", "session", "running"])
def test_axe_finds_no_serious_fault(name: str, scheme: str, browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit.begin(browser, pages[name], WIDTHS[1], scheme)
    assert pages[name].stat().st_size < 1_500_000
    found = axe.Axe().run(visit.page).response["violations"]
    serious = [
        (one["id"], one["impact"], one["help"], [node["html"] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    visit.page.close()


def test_names_are_shown_and_never_run(browser: Any, tmp_path: Path) -> None:
    evil = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    events = recording("allreduce").events
    for event in events:
        event["function"] = evil
    file = tmp_path / "evil.html"
    file.write_text(
        make_page(describe_run({**document("allreduce"), "dataset": evil, "confinement": evil}, events, ()))
    )
    visit = Visit.begin(browser, file, 1600)
    assert visit.page.title().startswith(f"AllReduce, LeNet-5 on {evil}")
    visit.page.hover("#timeline .role-mark path >> nth=0")
    tooltip = visit.page.wait_for_selector("#vg-tooltip-element.visible")
    assert evil in tooltip.inner_text()
    assert visit.page.query_selector("img") is None
    assert visit.overflow() <= 0
    assert visit.troubles == []
    visit.page.close()

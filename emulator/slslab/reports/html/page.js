"use strict";
// Draws the charts of this file; in a page that is served during a run, fetches what has changed.
(() => {
  const root = document.documentElement;
  const font = getComputedStyle(document.body).fontFamily;
  // Colours are variables of the style sheet, so that they follow the colour scheme, in print too.
  const config = {
    background: "transparent",
    font,
    // A chart is one picture with a label, and tables have its numbers.
    aria: false,
    view: { stroke: null },
    axis: {
      labelColor: "var(--muted)", titleColor: "var(--muted)", gridColor: "var(--line)", domainColor: "var(--line)",
      tickColor: "var(--line)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 8,
      labelPadding: 5,
    },
    text: { color: "var(--text)", fontSize: 12 },
    header: { labelColor: "var(--text)", labelFontSize: 12, titleColor: "var(--muted)" },
  };
  const options = {
    actions: false, renderer: "svg", ast: true, defaultStyle: false, config,
    tooltip: { disableDefaultStyle: true },
  };
  const drawn = new Map();

  const rows = ({ columns, rows }) =>
    rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]])));

  async function draw(chart) {
    const place = document.getElementById(chart.id);
    const datasets = Object.fromEntries(Object.entries(chart.data).map(([name, data]) => [name, rows(data)]));
    const { view } = await vegaEmbed(place, { ...chart.spec, datasets }, options);
    drawn.get(chart.id)?.view.finalize();
    drawn.set(chart.id, { view, text: JSON.stringify(chart) });
  }

  const charts = (within) => JSON.parse(within.querySelector("#charts").textContent);

  async function drawAll(found) {
    await Promise.all(found.map(draw));
    root.dataset.drawn = found.length;
  }

  // Sections are replaced where they differ, and charts drawn again where their data do.
  async function refresh() {
    const answer = await fetch(root.dataset.live, { cache: "no-store" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = charts(fresh);
    const content = document.getElementById("content");
    const open = new Set([...content.querySelectorAll("details[open]")].map((one) => one.id));
    const kept = new Map([...content.querySelectorAll(".chart")].map((one) => [one.id, one]));
    const stale = [];
    for (const chart of found) {
      const old = kept.get(chart.id);
      if (old && drawn.get(chart.id)?.text === JSON.stringify(chart)) {
        const place = fresh.getElementById(chart.id);
        old.setAttribute("aria-label", place.getAttribute("aria-label"));
        place.replaceWith(document.adoptNode(old));
      } else {
        stale.push(chart);
      }
    }
    for (const details of fresh.querySelectorAll("details")) details.open = open.has(details.id);
    content.replaceChildren(...fresh.body.childNodes);
    await Promise.all(stale.map(draw));
  }

  // The server reports when the run has changed; of changes while one is being shown, the last is shown next.
  function follow() {
    const source = new EventSource(root.dataset.events);
    let stale = false;
    let busy = false;
    source.addEventListener("changed", async ({ data }) => {
      stale = true;
      if (data !== "running") source.close();
      if (busy) return;
      busy = true;
      while (stale) {
        stale = false;
        try {
          await refresh();
        } catch {
          // The server has exited, or cannot be reached at the moment: what is shown stays.
        }
      }
      busy = false;
    });
    // A server that was started again does not know this browser: its page says what to do.
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) location.reload();
    });
  }

  drawAll(charts(document));
  if (root.dataset.live) follow();
})();

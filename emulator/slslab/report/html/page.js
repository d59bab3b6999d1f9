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
    // What is drawn has one label, that of its place.
    place.querySelector("svg").setAttribute("aria-hidden", "true");
    drawn.get(chart.id)?.view.finalize();
    drawn.set(chart.id, { view, text: JSON.stringify(chart) });
    offer(place);
  }

  // Charts that show one thing in several ways: buttons choose which of them is seen, at first the first.
  function offerChoice() {
    for (const choice of document.querySelectorAll(".switch")) {
      const buttons = [...choice.querySelectorAll("button")];
      const choose = (chosen) => {
        for (const button of buttons) {
          button.setAttribute("aria-pressed", button === chosen);
          document.getElementById(button.dataset.shows).closest("figure").hidden = button !== chosen;
        }
        // A chart that was hidden has the width of nothing.
        dispatchEvent(new Event("resize"));
      };
      for (const button of buttons) button.addEventListener("click", () => choose(button));
      choice.hidden = false;
      choose(buttons[0]);
    }
  }

  // Buttons that save a chart with its legend as a picture.
  function offer(place) {
    if (place.parentElement.querySelector(".save")) return;
    const buttons = document.createElement("p");
    buttons.className = "save";
    for (const kind of ["PNG", "SVG"]) {
      const button = document.createElement("button");
      button.textContent = kind;
      button.setAttribute("aria-label", `Save this chart as ${kind}`);
      button.addEventListener("click", () => save(place, kind));
      buttons.append(button);
    }
    place.after(buttons);
  }

  function save(place, kind) {
    const svg = place.querySelector("svg").cloneNode(true);
    const width = Number(svg.getAttribute("width"));
    let [x, height] = [8, Number(svg.getAttribute("height"))];
    for (const key of place.parentElement.querySelectorAll(".legend li")) {
      const wide = 30 + 7 * key.textContent.length;
      if (x + wide > width) x = 8;
      if (x === 8) height += 20;
      const colour = getComputedStyle(key.querySelector("i")).backgroundColor;
      svg.insertAdjacentHTML("beforeend", `<rect x="${x}" y="${height - 13}" width="11" height="11" fill="${colour}"/>
        <text x="${x + 16}" y="${height - 3}" font-family='${font}' font-size="12" fill="var(--muted)"></text>`);
      svg.lastElementChild.textContent = key.textContent;
      x += wide;
    }
    height += 8;
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.insertAdjacentHTML("afterbegin", `<rect width="${width}" height="${height}" fill="var(--card)"/>`);
    const values = getComputedStyle(root);
    const text = new XMLSerializer().serializeToString(svg)
      .replace(/var\((--[\w-]+)\)/g, (_, name) => values.getPropertyValue(name).trim());
    const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    if (kind === "SVG") {
      download(address, `${place.id}.svg`);
      return;
    }
    const image = new Image();
    image.addEventListener("load", () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * width, 2 * height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      download(canvas.toDataURL("image/png"), `${place.id}.png`);
    });
    image.src = address;
  }

  function download(address, name) {
    const link = document.createElement("a");
    [link.href, link.download] = [address, name];
    link.click();
  }

  // Where a table is too wide for a phone, page.css shows its rows as lists, in which each cell has its column's name.
  const fitting = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      // What was stacked has another height, but no other width.
      if (target.dataset.width === String(target.clientWidth)) continue;
      target.dataset.width = target.clientWidth;
      target.classList.remove("stacked");
      target.classList.toggle("stacked", target.scrollWidth > target.clientWidth);
    }
  });

  function fitTables() {
    for (const place of document.querySelectorAll(".scroll")) {
      const names = [...place.querySelectorAll("thead th")].map((one) => one.textContent);
      for (const row of place.querySelectorAll("tbody tr, tfoot tr"))
        [...row.cells].forEach((cell, number) => { cell.dataset.column = names[number]; });
      fitting.observe(place);
    }
  }

  const charts = (within) => JSON.parse(within.querySelector("#charts").textContent);

  async function drawAll(found) {
    fitTables();
    await Promise.all(found.map(draw));
    offerChoice();
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
    // What opens by itself is bad news.
    for (const details of fresh.querySelectorAll("details")) details.open ||= open.has(details.id);
    content.replaceChildren(...fresh.body.childNodes);
    fitTables();
    await Promise.all(stale.map(draw));
    offerChoice();
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

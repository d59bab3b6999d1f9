"use strict";
// Keeps the list of runs up to date: the server reports when any of them has changed.
(() => {
  const place = document.getElementById("runs");
  const source = new EventSource("/events");
  let stale = false;
  let busy = false;
  source.addEventListener("changed", async () => {
    stale = true;
    if (busy) return;
    busy = true;
    while (stale) {
      stale = false;
      try {
        const answer = await fetch("/list", { cache: "no-store" });
        if (answer.ok) {
          const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
          const ticked = new Set([...place.querySelectorAll("input:checked")].map((one) => one.value));
          place.replaceChildren(...fresh.body.childNodes);
          for (const one of place.querySelectorAll("input")) one.checked = ticked.has(one.value);
        }
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
})();

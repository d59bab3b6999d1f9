"""Render a page as HTML, and write it."""

import base64
import hashlib
import math
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from slslab.errors import writable
from slslab.installation import __version__, cache_directory
from slslab.report.page import Data, Page
from slslab.run import log

# Export the function that page.js calls.
SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def charting_library() -> str:
    """Return the script, about 0.9 MB. Bundling takes a second or two, so the user's cache keeps it.

    A cache that can't be read or written is ignored.
    """
    kept = cache_directory() / f"vega-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        import vl_convert

        script = vl_convert.javascript_bundle(SNIPPET)
        # The script must neither end its HTML element nor begin a comment.
        script = script.replace("</script", r"<\/script").replace("<!--", r"\x3C!--")
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            with log.replacing(kept) as file:
                file.write(script.encode())
        return script


if TYPE_CHECKING:
    from jinja2 import Environment


def make_page(page: Page, live: str = "") -> str:
    """Return a page as HTML. A live page reloads `live`/content after each server-sent event of `live`/events."""
    style, script = page_file("page.css"), page_file("page.js")
    # A page that changes may get charts later.
    library = charting_library() if live or any(card.charts for card in page.cards) else ""
    policy = {
        "default-src": "'none'",
        "style-src": inline_hash(style),
        "script-src": f"{inline_hash(library)} {inline_hash(script)}",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **({"connect-src": "'self'"} if live else {}),
    }
    return templates(__package__).get_template("page.html.j2").render(
        page=page,
        content=make_content(page),
        live=live,
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        style=style,
        script=script,
        library=library,
    )  # fmt: skip


def make_content(page: Page) -> str:
    """Return the main part of a page and the data of its charts, as HTML."""
    charts = [
        {
            "id": chart.id,
            "spec": chart.spec,
            "data": {name: {"columns": data.columns, "rows": _finite(data)} for name, data in chart.data.items()},
        }
        for card in page.cards
        for chart in card.charts
    ]
    return templates(__package__).get_template("content.html.j2").render(page=page, charts=charts, version=__version__)


def _finite(data: Data) -> list[list[str | int | float | None]]:
    """Return rows with None for infinities and NaN (the loss of a diverged run), which JSON lacks."""
    return [
        [None if isinstance(value, float) and not math.isfinite(value) else value for value in row] for row in data.rows
    ]


@cache
def templates(package: str) -> "Environment":
    """Return the templates of a package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page_file(name: str) -> str:
    """Return the pages' style sheet or script, by file name."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def inline_hash(text: str) -> str:
    """Return the hash of an inline element's text for a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_page(path: Path, text: str) -> None:
    """Write the file atomically; RequestError if it can't be written."""
    with writable(path, "choose another file."), log.replacing(path) as file:
        file.write(text.encode())

"""The charting library (Vega, Vega-Lite and Vega-Embed) as one script, built once per version and cached."""

import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

# Export the function that page.js calls.
SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def charting_library() -> str:
    """Return the script, about 0.9 MB. Bundling takes a second or two, so the user's cache keeps it.

    A cache that can't be read or written is ignored.
    """
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache_folder / "slslab" / f"vega-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        import vl_convert

        script = vl_convert.javascript_bundle(SNIPPET)
        # The script must neither end its HTML element nor begin a comment.
        script = script.replace("</script", r"<\/script").replace("<!--", r"\x3C!--")
        _keep(kept, script)
        return script


def _keep(path: Path, text: str) -> None:
    # Write to a process-specific name first, because another process may be reading.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # its directory may not exist, as with HOME=/dev/null
            temporary.unlink()

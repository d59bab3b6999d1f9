"""The charting library as one script, Vega, Vega-Lite and Vega-Embed, made once per version and cached."""

import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

# The function that a page's own script calls.
SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def charting_library() -> str:
    """Return the script, about 0.9 MB. Bundling takes a second or two, so it is kept in the user's cache.

    A cache that cannot be read or written is ignored.
    """
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache_folder / "slslab" / f"vega-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        import vl_convert

        script = vl_convert.javascript_bundle(SNIPPET)
        # Within a script element, nothing may end the element or begin a comment.
        script = script.replace("</script", r"<\/script").replace("<!--", r"\x3C!--")
        _keep(kept, script)
        return script


def _keep(path: Path, text: str) -> None:
    # First under a name of this process: another process may be reading.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # where even its directory cannot be, as below HOME=/dev/null
            temporary.unlink()

"""Cache sweeps' results in the user's cache, by a digest of everything they depend on."""

import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from platform import python_version
from typing import Any

from slslab.errors import HostError, writable
from slslab.installation import cache_directory
from slslab.run.log import replacing

# s; results that took less are recomputed faster than read from a file.
LEAST_S = 0.002
# Code, tables and the small datasets.
SOURCES = (".py", ".toml", ".npz")


class Results:
    """What a function with these inputs returned, in one file for each point.

    The digest covers the function's name, the source of slslab and of `packages`, the versions of Python, NumPy and
    SciPy, and `inputs`, which are bound to the function. Points are identified by their `repr`.
    """

    def __init__(self, function: Callable[..., Any], inputs: Iterable[str], packages: Iterable[str] = ()) -> None:
        named: Any = function.func if isinstance(function, partial) else function
        sources = map(_source, ("slslab", "slslab_lab", "slslab_workers", *packages))
        versions = (python_version(), version("numpy"), version("scipy"))
        self._folder = folder() / _digest(named.__module__, named.__qualname__, *versions, *sources, *inputs)

    def read(self, points: Sequence[Any]) -> dict[int, Any]:
        """Return the cached results, by the number of the point; ignore unreadable files."""
        if not os.path.isdir(self._folder):  # Path.is_dir would raise without permission
            return {}
        found = {}
        for number, point in enumerate(points):
            try:
                found[number] = pickle.loads(self._path(point).read_bytes())
            except Exception:  # pickle may raise anything for a damaged file
                continue
        return found

    def keep(self, point: Any, result: Any, seconds: float) -> None:
        """Cache a result unless it took too few seconds; HostError if it can't be written."""
        if seconds < LEAST_S:
            return
        with writable(self._folder, "set XDG_CACHE_HOME to another folder, or leave out --on.", HostError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(point), on_disk=False) as file:
                file.write(pickle.dumps(result))

    def _path(self, point: Any) -> Path:
        return self._folder / f"{_digest(repr(point))}.pickle"


def folder() -> Path:
    """Return the folder of cached results; removing it only costs time."""
    return cache_directory() / "sweeps"


@cache
def _source(package: str) -> str:
    spec = find_spec(package)
    assert spec is not None, "it was imported"
    directories = [Path(directory) for directory in spec.submodule_search_locations or ()]
    files = [file for directory in directories for file in directory.rglob("*") if file.suffix in SOURCES]
    files = sorted(files) or [Path(str(spec.origin))]
    return _digest(*(text for file in files for text in (file.name, sha256(file.read_bytes()).hexdigest())))


def _digest(*texts: str) -> str:
    # Different lists of texts have different reprs.
    return sha256(repr(texts).encode()).hexdigest()

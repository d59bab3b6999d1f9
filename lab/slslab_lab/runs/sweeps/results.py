"""Results of sweeps in the user's cache: what was computed once, by a digest of all that it depends on."""

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

from slslab.errors import HostError
from slslab.installation import cache_directory

# s; what is computed in less is computed in less than its file is written, found and read.
LEAST_S = 0.002
# Code, tables and the small datasets.
SOURCES = (".py", ".toml", ".npz")


class Results:
    """What a function with these inputs returned, a file for each point.

    The digest is that of the function's name, of slslab's own source and that of `packages` beside it, of the versions
    of Python, NumPy and SciPy, and of `inputs`: what is bound to the function. Points are told apart by their `repr`.
    """

    def __init__(self, function: Callable[..., Any], inputs: Iterable[str], packages: Iterable[str] = ()) -> None:
        named: Any = function.func if isinstance(function, partial) else function
        sources = map(_source, ("slslab", "slslab_lab", "slslab_workers", *packages))
        versions = (python_version(), version("numpy"), version("scipy"))
        self._folder = folder() / _digest(named.__module__, named.__qualname__, *versions, *sources, *inputs)

    def read(self, points: Sequence[Any]) -> dict[int, Any]:
        """Return what is known, by the number of the point; a file that cannot be read is none."""
        if not os.path.isdir(self._folder):  # not Path.is_dir, which raises where nothing may be read
            return {}
        found = {}
        for number, point in enumerate(points):
            try:
                found[number] = pickle.loads(self._path(point).read_bytes())
            except Exception:  # of a damaged file pickle raises anything
                continue
        return found

    def keep(self, point: Any, result: Any, seconds: float) -> None:
        """Keep what took so many seconds, if that is worth it; HostError if it cannot be written."""
        if seconds < LEAST_S:
            return
        path = self._path(point)
        # First under a name of this process: another one may be reading or writing.
        temporary = path.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(pickle.dumps(result))
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise HostError(
                f"Results cannot be kept in {self._folder}: {error.strerror}.",
                "name another cache folder in XDG_CACHE_HOME, or leave out --on.",
            ) from error

    def _path(self, point: Any) -> Path:
        return self._folder / f"{_digest(repr(point))}.pickle"


def folder() -> Path:
    """Return where results are kept; who removes it loses time and nothing else."""
    return cache_directory() / "sweeps"


@cache
def _source(package: str) -> str:
    """Return the digest of a package's code and tables: results of another version are others."""
    spec = find_spec(package)
    assert spec is not None, "it was imported"
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    files = [file for place in places for file in place.rglob("*") if file.suffix in SOURCES]
    files = sorted(files) or [Path(str(spec.origin))]
    return _digest(*(text for file in files for text in (file.name, sha256(file.read_bytes()).hexdigest())))


def _digest(*texts: str) -> str:
    total = sha256()
    for text in texts:
        # With its length, so that no two lists of texts have the same bytes.
        data = text.encode()
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()

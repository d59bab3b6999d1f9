"""Merge the layers of a function into the directory that it sees as /opt.

https://docs.aws.amazon.com/lambda/latest/dg/chapter-layers.html
"""

import os
import shutil
import tempfile
import threading
from pathlib import Path

from slslab.lambda_.runtimes import link_or_copy


class Layers:
    """Merged layers below one directory, each combination made once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._merged: dict[tuple[Path, ...], Path] = {}
        self._lock = threading.Lock()

    def known(self, layers: tuple[Path, ...]) -> Path | None:
        """Return the directory if it has been made."""
        return self._merged.get(layers)

    def merged(self, layers: tuple[Path, ...]) -> Path:
        """Return one directory with these layers' files; a later layer's files replace an earlier one's.

        documented: adding-layers.html, "Lambda extracts the layer contents into the /opt directory … each layer
        overwrites any identical files of the layers before it".
        """
        with self._lock:
            if layers not in self._merged:
                self._remove_outdated()
                self._merged[layers] = self._merge(layers)
            return self._merged[layers]

    def _merge(self, layers: tuple[Path, ...]) -> Path:
        if len(layers) == 1:
            return layers[0].resolve()
        self._home.mkdir(parents=True, exist_ok=True)
        merged = Path(tempfile.mkdtemp(dir=self._home))
        try:
            merged.chmod(0o755)  # environments have users of their own
            for layer in layers:
                _add(layer, merged)
        except BaseException:
            shutil.rmtree(merged, ignore_errors=True)
            raise
        return merged

    def _remove_outdated(self) -> None:
        """Remove merged directories of deleted layers, which no function or environment uses any more."""
        for layers in [layers for layers in self._merged if not all(layer.exists() for layer in layers)]:
            shutil.rmtree(self._merged.pop(layers), ignore_errors=True)


def _add(layer: Path, merged: Path) -> None:
    """Link a layer's files into a directory, replacing existing files."""
    for top, folders, files in os.walk(layer):
        into = merged / Path(top).relative_to(layer)
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in (*files, *links, *(folder for folder in folders if folder not in links)):
            target, source = into / name, Path(top, name)
            kept = source.is_dir() and not source.is_symlink() and target.is_dir() and not target.is_symlink()
            if not kept and os.path.lexists(target):
                _remove(target)
            if source.is_symlink():
                target.symlink_to(os.readlink(source))
            elif source.is_dir():
                target.mkdir(exist_ok=True)
                target.chmod(0o755)
            else:
                link_or_copy(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()

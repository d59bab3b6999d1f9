"""Layers as the function sees them: merged into /opt, in its order."""

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.namespaces import without_namespaces

from slslab.lambda_.emulator import Emulator
from slslab.lambda_.layers import Layers, LayerVersion
from slslab.lambda_.packages import Code, unpacked
from slslab.lambda_.runtimes import OWN
from slslab.testing import create_function, packaged

pytestmark = pytest.mark.server

CODE = """
import os, subprocess, sys
import both, first, versioned

def handler(event, context):
    refused = None
    try:
        open(os.path.join(os.path.dirname(both.__file__), "written"), "w").close()
    except OSError as error:
        refused = error.strerror
    tool = subprocess.run(["tool"], capture_output=True, text=True).stdout
    return [both.NAME, first.NAME, versioned.NAME, both.__file__, tool, refused, "boto3" in sys.modules]
"""


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return folder


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Path, ...]:
    one = {
        "python/both.py": "NAME = 'one'\n",
        "python/first.py": "NAME = 'one'\n",
        "python/versioned.py": "NAME = 'of any version'\n",
        "bin/tool": "#!/bin/sh\necho one\n",
    }
    two = {"python/both.py": "NAME = 'two'\n", f"python/lib/{OWN}/site-packages/versioned.py": "NAME = 'of this one'\n"}
    return make(tmp_path / "one", one), make(tmp_path / "two", two)


def give(emulator: Emulator, name: str, layers: tuple[Path, ...]) -> None:
    """Give a function layers, as a request would that names published ones."""
    entry = emulator.service._functions.entry(name)
    versions = tuple(LayerVersion(layer.name, 1, Code(layer, 0, ""), {}) for layer in layers)
    entry.latest = replace(entry.latest, layers=versions)


@pytest.mark.parametrize("isolate", [True, False])
def test_layers_are_merged_in_their_order(layers: tuple[Path, ...], isolate: bool) -> None:
    with nullcontext() if isolate else without_namespaces(), Emulator() as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", CODE)
        give(emulator, "f", layers)
        answer = json.loads(client.invoke(FunctionName="f")["Payload"].read())
        isolated = bool(emulator.isolation.mode)
        assert answer[:3] == ["two", "one", "of this one"]
        assert answer[3] == "/opt/python/both.py" or not isolated
        assert answer[4:] == ["one\n", "Read-only file system" if isolated else None, False]
        client.close()


def test_a_function_without_layers_has_an_empty_opt(deploy: Callable[..., str], invoke: Callable[..., Any]) -> None:
    name = deploy("import os\n\ndef handler(event, context):\n    return os.listdir('/opt')\n")
    assert invoke(name).payload == []


def test_a_later_layer_replaces_files_links_and_folders(tmp_path: Path) -> None:
    one = make(tmp_path / "one", {"a": "1", "b/c": "1", "d": "1"})
    (one / "link").symlink_to("a")
    two = make(tmp_path / "two", {"a/x": "2", "b/e": "2"})
    (two / "d").symlink_to("b")
    (two / "link").write_text("2")
    merged = Layers(tmp_path / "merged").merged((one, two))
    found = {str(path.relative_to(merged)): path.read_text() for path in merged.rglob("*") if path.is_file()}
    assert found == {"a/x": "2", "b/c": "1", "b/e": "2", "link": "2"}
    assert (merged / "d").readlink() == Path("b")
    assert (one / "a").read_text() == "1", "a layer itself is never changed"


def test_a_folder_that_a_layer_replaced_does_not_come_back(tmp_path: Path) -> None:
    layers = [make(tmp_path / str(n), {name: ""}) for n, name in enumerate(("a/x", "a", "a/y"))]
    merged = Layers(tmp_path / "merged").merged(tuple(layers))
    assert [path.name for path in (merged / "a").iterdir()] == ["y"]


def test_a_start_with_merged_layers_does_not_wait_for_another_merge(layers: tuple[Path, ...], tmp_path: Path) -> None:
    known = Layers(tmp_path / "merged")
    merged = known.merged(layers)
    with ThreadPoolExecutor(1) as pool, known._lock:
        assert pool.submit(known.merged, layers).result(30) == merged


@pytest.fixture
def private_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("private_umask")
def test_everybody_can_read_layers(tmp_path: Path) -> None:
    """An environment may have a user of its own."""
    packed = packaged("")
    with zipfile.ZipFile(buffer := io.BytesIO(packed), "a") as package:
        package.writestr("python/package/module.py", "")
    layer = unpacked(buffer.getvalue(), tmp_path / "layer")
    merged = Layers(tmp_path / "merged").merged((layer, make(tmp_path / "other", {"bin/tool": ""})))
    for top in (layer, merged):
        assert {path.stat().st_mode & 0o777 for path in (top, *top.rglob("*")) if path.is_dir()} == {0o755}


def test_a_merge_that_failed_is_tried_again_and_leaves_nothing(
    layers: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_source: Path, _target: Path) -> str:
        raise OSError("No space left on device")

    known = Layers(tmp_path / "merged")
    with monkeypatch.context() as patched:
        patched.setattr("slslab.lambda_.layers.link_or_copy", fail)
        with pytest.raises(OSError, match="No space left"):
            known.merged(layers)
    assert list((tmp_path / "merged").iterdir()) == []
    assert (known.merged(layers) / "bin/tool").exists()


def test_what_was_merged_of_a_removed_layer_is_removed(layers: tuple[Path, ...], tmp_path: Path) -> None:
    known = Layers(tmp_path / "merged")
    outdated = known.merged(layers)
    shutil.rmtree(layers[0])
    newer = known.merged((layers[1], make(tmp_path / "three", {"a": ""})))
    assert not outdated.exists()
    assert newer.exists()
    assert layers not in known._merged

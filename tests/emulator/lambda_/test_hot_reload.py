"""Code directories used in place: below a root only, checked again at each cold start, and no way out of them."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring
from slslab.aws.limits import lambda_limits
from slslab.host import spawner
from slslab.host.namespaces import Isolation, Spawner, detect
from slslab.host.spawner import open_directory
from slslab.lambda_ import process_sandbox
from slslab.lambda_.container_sandbox import readable
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.packages import Packages
from slslab.testing import create_function

HANDLER = """
import os

def handler(event, context):
    try:
        return open(os.path.join(os.environ["LAMBDA_TASK_ROOT"], event)).read()
    except OSError as error:
        return error.strerror
"""
LIMITS = lambda_limits().changed(unzipped_bytes=1000)
OUTSIDE = "is not below a directory that hot reload may use"
NO_DIRECTORY = "is not an absolute path of an existing directory"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with code in it, and outside of it a folder that only its owner may read."""
    (tmp_path / "root" / "code").mkdir(parents=True)
    (tmp_path / "root" / "code" / "app.py").write_text(HANDLER)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private" / "app.py").write_text("def handler(event, context):\n    return 'secret'\n")
    return tmp_path / "root"


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    """Packages that allow no directory yet."""
    return Packages(
        tmp_path / "functions",
        LIMITS,
        lambda _bucket, _key, _version, _limit: b"",
        lambda _uri: pytest.fail("no image"),
        Keyring().owner,
    )


def used(packages: Packages, path: object) -> Path | None:
    return packages.store("f", {"S3Bucket": "hot-reload", "S3Key": str(path)}).directory


def refusal(packages: Packages, path: object) -> str:
    with pytest.raises(ServiceError) as caught:
        used(packages, path)
    assert (caught.value.status, caught.value.error_type) == (400, "InvalidParameterValueException")
    return caught.value.message


def test_a_root_and_what_is_below_it_can_be_used(packages: Packages, root: Path) -> None:
    packages.allow(root)
    assert used(packages, root) == root
    assert used(packages, f"{root}/code/../code/") == root / "code"
    (root / "another").symlink_to("code")
    assert used(packages, root / "another") == root / "code"


def test_without_a_root_every_directory_is_refused(packages: Packages, root: Path) -> None:
    assert refusal(packages, root) == (
        f"The code directory '{root}' is refused: this emulator was given no directory for hot reload. "
        "Name one with `slslab up --code`, or as Emulator(code_roots=[…])."
    )


def test_what_is_not_below_a_root_is_refused_and_not_looked_at(
    packages: Packages, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fwalk", lambda **_: pytest.fail("it was read"))
    packages.allow(root)
    packages.allow(root / "code")
    private = root.parent / "private"
    (root / "link").symlink_to(private)
    (root / "up").symlink_to("..")
    beside = root.parent / "root-beside"
    beside.mkdir()
    for path in ("/", "/proc", private, root / "link", f"{root}/../private", root / "up" / "private", beside):
        assert refusal(packages, path) == (
            f"The code directory '{path}' {OUTSIDE} ({root}, {root}/code). "
            f"Start slslab up with --code '{path}', or there."
        )
    assert OUTSIDE in refusal(packages, root.parent / "missing"), "nothing tells whether it exists"


def test_what_is_no_directory_is_refused(packages: Packages, root: Path) -> None:
    packages.allow(root)
    (root / "loop").symlink_to("loop")
    wrong = (
        "",
        ".",
        "code",
        "../code",
        root / "missing",
        root / "code" / "app.py",
        root / "loop",
        f"{root}/\0",
        f"{root}/\ud800",
    )
    for path in wrong:
        assert NO_DIRECTORY in refusal(packages, path)


def test_a_root_may_be_given_through_a_link(packages: Packages, root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    packages.allow(link)
    assert used(packages, link / "code") == root / "code"
    assert used(packages, root / "code") == root / "code"


def test_the_size_ends_at_the_limit_and_follows_no_link(packages: Packages, root: Path) -> None:
    packages.allow(root)
    (root / "large").write_bytes(bytes(1001))
    (root / "code" / "large").symlink_to(root / "large")
    assert used(packages, root / "code") == root / "code"
    (root / "code" / "loop").symlink_to("..")
    assert used(packages, root / "code") == root / "code"
    assert refusal(packages, root) == "Unzipped size must be smaller than 1000 bytes"
    assert packages.largest_bytes < 1000


def test_a_tree_is_not_walked_beyond_the_limit(packages: Packages, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages.allow(root)
    (root / "large").write_bytes(bytes(1001))
    walk, seen = os.fwalk, []

    def counting(**settings: Any) -> Any:
        for entry in walk(**settings):
            seen.append(entry[0])
            yield entry

    monkeypatch.setattr(os, "fwalk", counting)
    refusal(packages, root)
    assert seen == ["."]


def test_a_copy_for_a_container_follows_no_link(root: Path) -> None:
    code, home = root / "code", root.parent / "home"
    home.mkdir()
    (code / "secret").symlink_to(root.parent / "private")
    assert readable(code, home) == code
    code.chmod(0o700)
    copy = readable(code, home)
    assert copy.is_relative_to(home)
    assert (copy / "secret").readlink() == root.parent / "private"
    code.rename(root / "moved")
    code.symlink_to(root.parent / "private")
    with pytest.raises(OSError, match="is gone, or a link is in its place"):
        readable(code, home)


@pytest.mark.parametrize("copied", [False, True])
def test_a_directory_that_was_opened_is_bound_or_copied_whatever_takes_its_place(
    root: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    code, private = root / "code", root.parent / "private"
    (code / "secret").symlink_to(private)
    code.chmod(0o700 if copied else 0o755)
    bound: dict[str, Any] = {}

    def open_and_swap(path: str) -> int:
        descriptor = open_directory(path)
        code.rename(root / "moved")
        code.symlink_to(private)
        return descriptor

    def bind(source: str, _target: str) -> None:
        bound.update(app=Path(source, "app.py").read_text(), secret=os.readlink(f"{source}/secret"), source=source)

    def bind_mapped(*_: object) -> None:
        raise OSError("as Docker's overlay")

    monkeypatch.setattr(spawner, "open_directory", open_and_swap)
    monkeypatch.setattr(spawner, "bind", bind)
    monkeypatch.setattr(spawner, "bind_mapped", bind_mapped)
    if copied:  # as in an environment that was reset
        (root / "environment-code").mkdir()
    spawner.bind_code({"code": str(code), "uid": os.getuid(), "root": str(root / "environment")}, "/var/task")
    assert (bound["app"], bound["secret"]) == (HANDLER, str(private))
    assert (bound["source"] == f"{root}/environment-code") is copied


@pytest.fixture(params=["as detected", "user", "none"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Isolation:
    """What separates environments of an emulator that is entered from now on."""
    if request.param == "as detected":
        return detect()
    chosen = Isolation("user" if request.param == "user" else "", False)
    try:
        Spawner(chosen).close()
    except OSError as error:
        pytest.skip(f"no user namespaces here: {error}")
    monkeypatch.setattr(process_sandbox, "namespaces", lambda *_: chosen)
    return chosen


def invoke(client: Any, event: str = "") -> Any:
    return json.loads(client.invoke(FunctionName="f", Payload=json.dumps(event))["Payload"].read())


@pytest.mark.server
@pytest.mark.parametrize("replaced", ["code", "."])
def test_a_link_in_the_place_of_the_directory_starts_nothing(isolation: Isolation, root: Path, replaced: str) -> None:
    """Neither in its own place nor in place of a parent directory."""
    code = root / "code"
    with Emulator(code_roots=[root]) as emulator:
        assert emulator.isolation == isolation
        client = emulator.client("lambda")
        create_function(client, "f", code)
        replacement = root.parent / "private"
        if replaced == ".":
            replacement = root.parent / "other"
            replacement.mkdir()
            (root.parent / "private").rename(replacement / "code")
        moved, place = root.parent / "moved", root / replaced
        place.rename(moved)
        place.symlink_to(replacement)
        with pytest.raises(ClientError, match=f"could not start: the code directory {code} is gone, or a link is"):
            invoke(client)
        place.unlink()
        with pytest.raises(ClientError, match=r"or a link is in its place \(No such file or directory\)"):
            invoke(client)
        moved.rename(place)
        assert invoke(client, "app.py") == HANDLER, "it is the directory again"
        client.close()


@pytest.mark.server
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_link_in_the_directory_leads_nowhere_outside(emulator: Emulator, root: Path, mode: int) -> None:
    if not emulator.isolation.mode:
        pytest.skip("no namespaces here: functions see all that the emulator's user sees")
    code = root / "code"
    (code / "absolute").symlink_to(root.parent / "private")
    (code / "relative").symlink_to("../../private")
    (code / "inside").symlink_to("app.py")
    code.chmod(mode)
    emulator.packages.allow(code)
    client = emulator.client("lambda")
    create_function(client, "f", code)
    try:
        assert invoke(client, "absolute/app.py") == "No such file or directory"
        assert invoke(client, "relative/app.py") == "No such file or directory"
        assert invoke(client, "inside") == HANDLER
    finally:
        client.delete_function(FunctionName="f")
        client.close()


@pytest.mark.server
def test_packages_may_lie_behind_a_link(isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the directory for temporary files is a link: these are the emulator's own."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
    with Emulator() as emulator:
        assert emulator.isolation == isolation
        client = emulator.client("lambda")
        create_function(client, "f", HANDLER)
        assert invoke(client, "missing") == "No such file or directory"
        client.close()

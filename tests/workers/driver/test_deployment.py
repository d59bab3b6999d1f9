"""A function's package: what is in it, and that it is made the same again."""

import io
import threading
import zipfile
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.architecture import RunFailed
from slslab_workers.driver.deployment import Deployment, FunctionSpec, create_function, package
from slslab_workers.plan import PlanError

HANDLER = "slslab_workers.allreduce.handlers.handler"


def test_a_package_has_the_workers_code_and_no_data_set() -> None:
    with zipfile.ZipFile(io.BytesIO(package(HANDLER))) as archive:
        names = archive.namelist()
    assert "slslab_workers/allreduce/handlers.py" in names
    assert not [name for name in names if name.endswith((".npz", ".pyc"))]


@pytest.mark.parametrize("message", ["Unzipped size must be smaller than 9 bytes", "Role does not exist"])
def test_a_package_that_is_too_large_is_refused(message: str) -> None:
    class Refusing:
        def create_function(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": "InvalidParameterValueException", "Message": message}}, "Create")

    plan = make_plan(architectures()["allreduce"], {"dataset": "digits"}, {})
    spec = FunctionSpec("f", HANDLER, 128)
    if "size" not in message:
        with pytest.raises(ClientError):
            create_function(Refusing(), spec, plan)
        return
    with pytest.raises(PlanError, match=f"The package of {HANDLER} is too large for Lambda: {message}"):
        create_function(Refusing(), spec, plan)


def test_equal_sources_give_equal_packages() -> None:
    assert package(HANDLER) == package(HANDLER)


def test_a_package_has_other_packages_and_single_modules_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "packed_net.py").write_text("answer = 42\n")
    (tmp_path / "packed" / "data").mkdir(parents=True)
    (tmp_path / "packed" / "__init__.py").touch()
    (tmp_path / "packed" / "data" / "weights.npz").write_text("numbers")
    with zipfile.ZipFile(io.BytesIO(package(HANDLER, "packed_net", "packed.deep"))) as archive:
        assert archive.read("packed_net.py") == b"answer = 42\n"
        assert archive.read("packed/data/weights.npz") == b"numbers"
    with pytest.raises(PlanError, match=r"The package of no_such_net cannot be imported"):
        package(HANDLER, "no_such_net")


@pytest.mark.parametrize("of_companion", [True, False])
def test_the_first_failure_stops_the_other_workers(of_companion: bool) -> None:
    worker: Future[Any] = Future()
    worker.set_exception(RunFailed("Failed", "the worker"))

    def check_companion() -> None:
        if of_companion:
            raise RunFailed("Failed", "the companion")

    deployment: Any = SimpleNamespace(_stopping=threading.Event(), _check_companion=check_companion)
    with pytest.raises(RunFailed, match="the companion" if of_companion else "the worker"):
        Deployment._first_failure_ends(deployment, [worker])
    assert deployment._stopping.is_set()

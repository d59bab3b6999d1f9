"""A function's package: what is in it, and that it is made the same again."""

import io
import zipfile

from slslab_workers.driver.deployment import package

HANDLER = "slslab_workers.allreduce.handlers.handler"


def test_a_package_has_the_workers_code_and_no_data_set() -> None:
    with zipfile.ZipFile(io.BytesIO(package(HANDLER))) as archive:
        names = archive.namelist()
    assert "slslab_workers/allreduce/handlers.py" in names
    assert not [name for name in names if name.endswith((".npz", ".pyc"))]


def test_equal_sources_give_equal_packages() -> None:
    assert package(HANDLER) == package(HANDLER)

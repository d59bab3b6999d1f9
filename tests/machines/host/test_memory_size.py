"""The check of a memory size: on a busy host, its ranges are too wide to call another size surely cheaper."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.server


def test_a_memory_size_that_is_too_large_fails(
    deploy: Callable[..., str],
    lambda_client: Any,
    tune: Callable[..., dict[str, Any]],
    assert_memory_size: Callable[..., None],
) -> None:
    """A function that sleeps costs twelve times as much with twelve times the memory size."""
    name = deploy("import time\ndef handler(event, context): time.sleep(event)", MemorySize=3008)
    document = tune(name, events=[(1, 0.05), (3, 0.1)], sizes=(256, 512))
    assert [row["basis"] for row in document["sizes"]][::2] == ["measured", "measured"]
    assert (document["memory"], document["memory_mb"]) == (256, 3008)
    with pytest.raises(pytest.fail.Exception, match="Cheapest on Lambda: 256 MB") as failed:
        assert_memory_size(name, 0.1, sizes=(256,))
    assert f"{name} has 3,008 MB, which costs" in str(failed.value)
    assert lambda_client.get_function_configuration(FunctionName=name)["MemorySize"] == 3008
    assert_memory_size(name, 0.1, sizes=(256,), at_most=20)
    lambda_client.update_function_configuration(FunctionName=name, MemorySize=256)
    assert_memory_size(name, 0.1, sizes=(256, 3008))

"""Limits and failures as a function meets them, in containers: the module for processes, unchanged."""

from typing import Any

from tests.emulator.lambda_ import test_conformance as processes
from tests.emulator.lambda_.test_runtime_api import (  # noqa: F401
    test_a_child_of_the_handler_is_answered,
    test_a_stranger_has_no_effect,
)

from slslab.lambda_.emulator import Emulator

# A container is never a fork of a template.
globals().update({name: value for name, value in vars(processes).items() if not name.startswith("test_a_template")})


def test_a_resting_container_counts_with_the_files_in_its_tmp(deploy: Any, invoke: Any, emulator: Emulator) -> None:
    name = deploy("def handler(event, context):\n    open('/tmp/f', 'wb').write(bytes(event << 20))\n")
    held = []
    for megabytes in (0, 100):
        invoke(name, megabytes)
        (environment,) = [e for e in emulator.service.pool.environments() if e.function.name == name]
        held.append(environment.resting_mb())
    assert 95 < held[1] - held[0] < 110

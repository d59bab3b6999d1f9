"""Emulators as on a host that allows no namespaces."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slslab.host.namespaces import Isolation
from slslab.lambda_ import process_sandbox


@contextmanager
def without_namespaces() -> Iterator[None]:
    """Emulators that are entered here find that the host allows no namespaces."""
    with pytest.MonkeyPatch.context() as patch:
        isolation = Isolation("", False, ("none are allowed here",))
        patch.setattr(process_sandbox, "namespaces", lambda _folder: isolation)
        yield

"""Limits and failures as a function meets them, in containers and through LocalStack: the same module, unchanged."""

from tests.slslab.test_conformance import *  # noqa: F403

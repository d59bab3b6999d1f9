"""Limits and failures as a function meets them, in containers: the module for processes, unchanged."""

from tests.slslab.test_conformance import *  # noqa: F403

"""Limits and failures as a function meets them on a cluster's node: the module for processes of one host, unchanged."""

from tests.emulator.lambda_ import test_conformance as processes

# An emulator of its own, a template's, is not on the cluster.
globals().update({name: value for name, value in vars(processes).items() if not name.startswith("test_a_template")})

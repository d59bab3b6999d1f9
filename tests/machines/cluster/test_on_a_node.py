"""Limits and failures as functions meet them on a cluster's nodes: the tests of one host, run on one of the nodes."""

import sys
from pathlib import Path

import pytest
from tests.machines.cluster.network import ON_NODE, Nodes

LIMIT_S = 400.0


@pytest.mark.exhaustive
def test_functions_meet_on_nodes_what_they_meet_on_one_host(nodes: Nodes) -> None:
    module = Path(__file__).with_name("test_conformance.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(module)]
    done = nodes.run(0, command, variables={ON_NODE: "1"}, limit_s=LIMIT_S)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    assert "passed" in done.stdout

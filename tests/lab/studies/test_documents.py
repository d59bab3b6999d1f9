"""What documents say of the hosts of their runs."""

import pytest

from slslab_lab.studies.documents import mixed_hosts

A = {"cores": 2, "name": "a (10.0.0.1)", "processors": "2 × Fast"}
B = {"cores": 2, "name": "b (10.0.0.2)", "processors": "2 × Slow"}
HERE = {"cores": 2}


@pytest.mark.parametrize("hosts", [(), (HERE, HERE), (A, A)])
def test_figures_of_one_host_are_not_mixed(hosts: tuple[dict[str, object], ...]) -> None:
    assert list(mixed_hosts(hosts)) == []


def test_figures_of_several_hosts_are_named_in_one_sentence() -> None:
    assert list(mixed_hosts([A, B, A, HERE])) == [
        "The `measured` column mixes 3 hosts, so its seconds aren't comparable: 2 runs on a (10.0.0.1), 2 × Fast, "
        "1 run on b (10.0.0.2), 2 × Slow, 1 run on a host without a name."
    ]

"""The accounts of a control group, read from files that are as the kernel's."""

from pathlib import Path

import pytest

from slslab.host.cgroup_accounts import GroupAccounts

V1, V2 = "memory.max_usage_in_bytes", "memory.peak"


@pytest.mark.parametrize(("version", "name", "written"), [(1, V1, "0"), (2, V2, "reset")])
def test_a_peak_begins_anew_also_after_it_has_been_read(version: int, name: str, written: str, tmp_path: Path) -> None:
    peak = tmp_path / name
    peak.write_text("1000\n")
    accounts = GroupAccounts(version, {"memory": tmp_path})
    assert accounts.peak_bytes() == 1000
    accounts.reset_peak()
    assert peak.read_text().startswith(written)
    accounts.close()

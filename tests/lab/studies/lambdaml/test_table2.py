"""LambdaML's Table 2: a transfer by hand, paces that are measured, and the command."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab.studies.setups import setup

from slslab_lab.studies.lambdaml import table2
from slslab_lab.studies.lambdaml.table2 import Pace, build, measure_paces, transfer
from slslab_lab.studies.minibatches import Estimate

Run = Callable[..., tuple[int, str, str]]
NAME = "lambdaml-table2"
SETUP = setup(NAME)


def pace(write: float, read: float, add: float, size: int) -> Pace:
    first, second, third = (Estimate(seconds, None, None, 1) for seconds in (write, read, add))
    return Pace(first, second, third, size)


PACES = {"raw": pace(0.0, 0.0, 0.01, 75_000_000), "doubles": pace(1.2, 0.5, 0.01, 150_000_000)}


@pytest.mark.parametrize(
    ("functions", "vcpu", "write", "network", "read"),
    [
        # 150 MB at 78.125 MB/s of one function.
        (1, 1.8, 1.2, 1.92, 0.5),
        (1, 0.6, 2.0, 1.92, 0.5),
        (10, 1.8, 1.2, 1.92, 5.0),
        # 1,250 MB/s of the server.
        (50, 1.8, 1.2, 6.0, 25.0),
    ],
)
def test_a_transfer_by_hand(functions: int, vcpu: float, write: float, network: float, read: float) -> None:
    taken = transfer(PACES["doubles"], {"functions": functions, "vcpu": vcpu}, SETUP.profile)
    assert (taken.write, taken.network, taken.read) == pytest.approx((write, network, read))
    assert taken.add == pytest.approx(0.01 * functions)
    assert taken.seconds == pytest.approx(write + network + read)
    assert taken.serialisation == pytest.approx((write + read) / (write + network + read))


def test_paces_are_measured_of_every_serialisation() -> None:
    reported: list[tuple[int, int]] = []
    found = measure_paces(1, lambda done, total: reported.append((done, total)))
    assert {name: each.size for name, each in found.items()} == {"raw": 1_000_000, "doubles": 2_000_000}
    assert found["doubles"].write.value > found["raw"].write.value
    assert found["doubles"].read.value > found["raw"].read.value
    assert all(each.add.value > 0 for each in found.values())
    assert reported[-1] == (8, 8)


def test_the_document_has_all_rows_and_says_what_binds() -> None:
    document = build(SETUP, PACES)
    assert len(document["rows"]) == 8
    assert all(len(row["cells"]) == 4 for row in document["rows"])
    assert "for raw vectors it is at most 0 %" in document["findings"][0]
    assert document["findings"][1].startswith("Doubles take longer than raw vectors in 8 of 8 rows")


def test_the_command(slslab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table2, "measure_paces", lambda megabytes, _report: PACES if megabytes == 75 else {})
    code, out, _ = slslab("reproduce", NAME, "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["reproduces"]) == (0, 1, NAME)
    saved = tmp_path / "runs" / f"reproduce-{NAME}-measured"
    assert {path.name for path in saved.iterdir()} == {f"{NAME}.{kind}" for kind in ("json", "csv", "html")}
    code, _, err = slslab("reproduce", NAME, "--profile", "none")
    assert (code, "none" in err) == (2, True)

"""SPIRT's operations without the database and with it: modelled by hand, measured on small vectors, compared."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.lab.replay.platform import operation, platform
from tests.lab.studies.setups import setup

from slslab.errors import RequestError, RunError
from slslab.predict.profiles.profile import Profile
from slslab.report.terminal import render
from slslab.stack.channels import find_server
from slslab_lab.pages.reproduction import reproduction
from slslab_lab.papers.paper import load_paper
from slslab_lab.papers.recomputation import recompute
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.documents import Cell, middle
from slslab_lab.studies.in_database import measurements
from slslab_lab.studies.in_database.measurements import (
    AVERAGE,
    IN_DATABASE,
    NAIVE,
    OPERATIONS,
    UPDATE,
    Arm,
    Measurements,
    Vector,
    Vectors,
    measure_models,
    naive_arm,
    running_mean,
    stacked_mean,
    take_turns,
)
from slslab_lab.studies.in_database.table import Exchange, build, compare_released, seconds
from slslab_lab.studies.study import Setup

# Vectors of 1 MB: 10 ms on the way.
PARAMETERS = 250_000
AVERAGING, UPDATING = (Exchange(name, PARAMETERS, 3, 1769) for name in OPERATIONS)
STUDY = STUDIES["in-database"]
Run = Callable[..., tuple[int, str, str]]


def with_databases() -> Profile:
    """Gets and sets of 2 ms, scripts of 4 ms, all at 100 MB/s."""
    tensors = {"get": operation(2, 100), "set": operation(2, 100), "script": operation(4, 100)}
    channel = {"description": "a database", "per_worker": True, "operations": tensors}
    document = platform().model_dump(by_alias=True)
    return Profile.model_validate({**document, "channels": {**document["channels"], "tensor": channel}})


PLATFORM = with_databases()


def beside(fidelity: str, *models: str) -> Setup:
    """The paper, and a platform with databases."""
    return setup("in-database", {"profile": PLATFORM}, fidelity=fidelity, models=models)


def arms(get: float, arithmetic: float, put: float, script: float) -> dict[str, Any]:
    """CPU seconds of three turns; each naive arm takes 8, 9 and 16 times as long as the database."""
    naive = {"get_cpu_s": (get,) * 3, "arithmetic_cpu_s": (arithmetic,) * 3, "put_cpu_s": (put,) * 3}
    found: dict[str, Any] = {arm: {"seconds": (8 * script, 18 * script, 16 * script), **naive} for arm in NAIVE}
    return {**found, IN_DATABASE: {"seconds": (script, 2 * script, script), "script_cpu_s": (script,) * 3}}


def made(**changed: Any) -> Measurements:
    """Measurements of one small network under ResNet-18's name."""
    both = {AVERAGE: arms(0.0, 0.007, 0.0, 0.1), UPDATE: arms(0.0, 0.002, 0.0, 0.01)}
    document = {
        "schema": 1,
        "measured": "2026-11-22",
        "command": "slslab reproduce in-database",
        "host": {"cores": 2, "python": "3.11"},
        "versions": {"numpy": "2", "hiredis": "none"},
        "load": {"before": (1, 1, 1), "after": (2, 1, 1)},
        "gradients": 3,
        "models": {"resnet18": {"parameters": PARAMETERS, "operations": both}},
        "released": {
            "redis": "7",
            "numbers": 1000,
            "json_bytes": (8000, 8000),
            "mean_bytes": 4000,
            "lua_cpu_s": (0.001, 0.002, 0.003),
            "decode_cpu_s": (0.0002,),
        },
    }
    return Measurements.model_validate({**document, **changed})


def test_averaging_without_and_with_by_hand() -> None:
    # Three gets of 12 ms, 7 of arithmetic, a set of 12.
    assert seconds(AVERAGING.naive(0.0, 0.007, 0.0), PLATFORM) == pytest.approx(0.055)
    # A client that takes 20 ms to receive is slower than the bytes: three gets of 22; the set's 5 are within its 10.
    assert seconds(AVERAGING.naive(0.060, 0.007, 0.005), PLATFORM) == pytest.approx(0.085)
    assert seconds(AVERAGING.in_database(0.1), PLATFORM) == pytest.approx(0.104)
    assert (AVERAGING.gets, AVERAGING.size) == (3, 1_000_000)


def test_an_update_fetches_parameters_and_one_gradient() -> None:
    assert seconds(UPDATING.naive(0.0, 0.002, 0.0), PLATFORM) == pytest.approx(0.038)
    assert seconds(UPDATING.in_database(0.01), PLATFORM) == pytest.approx(0.014)
    assert (UPDATING.gets, UPDATING.size, UPDATING.numbers) == (2, 1_000_000, 500_000)


def test_json_as_released_by_hand() -> None:
    # Three gets of 2 + 20 ms, 5 to decode, a set of 12.
    assert seconds(AVERAGING.naive(0.0, 0.005, 0.0, text_bytes=2_000_000), PLATFORM) == pytest.approx(0.083)
    # 4 + 100 for the script, 15 for the mean's way out, 3 to decode it, a set of 12.
    assert seconds(AVERAGING.round_trip(0.1, 1_500_000, 0.003), PLATFORM) == pytest.approx(0.134)


def test_json_of_small_gradients_is_scaled_by_the_number() -> None:
    released = made().released
    assert released is not None
    # 2 ms for 2,000 numbers are 1 µs each, decoding is 100 ns; 8 bytes a number, the mean 4.
    assert [released.lua_s, released.decode_s] == pytest.approx([1e-6, 1e-7])
    found = compare_released(AVERAGING, released, PLATFORM)
    # 750,000 numbers: gets of 2 + 20 ms, 75 ms to decode; Lua 750 ms, 10 out, 25 to decode the mean.
    assert found.modelled["without"] == pytest.approx(3 * 0.022 + 0.075 + 0.012)
    assert found.modelled["with"] == pytest.approx(0.004 + 0.750 + 0.010 + 0.025 + 0.012)
    assert found.measured == {}


def test_the_document_has_both_operations_and_all_variants() -> None:
    document = build(beside("replayed", "mobilenet", "resnet18"), made())
    assert (document["reproduces"], document["fidelity"], document["table"]["source"]) == (
        "in-database", "replayed", "Section 4.2",
    )  # fmt: skip
    assert [(row["name"], row["group"], row["variant"]) for row in document["rows"]] == [
        ("averaging of gradients", "ResNet-18", "redis-py"),
        ("averaging of gradients", "ResNet-18", "own client"),
        ("averaging of gradients", "ResNet-18", "as released"),
        ("update of the model", "ResNet-18", "redis-py"),
        ("update of the model", "ResNet-18", "own client"),
    ]
    assert any("MobileNet" in note for note in document["notes"])
    assert "models" not in document["measurements"]
    average, update = document["rows"][0], document["rows"][-1]
    cells = average["cells"]
    assert [cells[name]["published"] for name in ("without", "with", "ratio")] == ["67.32", "37.41", None]
    assert cells["without"]["modelled"]["value"] == pytest.approx(0.055)
    assert cells["with"]["measured"] == {"value": 0.1, "low": 0.1, "high": 0.2, "samples": 3}
    # Of turns: 8, 9 and 16 times.
    assert cells["ratio"]["measured"] == pytest.approx({"value": 9, "low": 8, "high": 16, "samples": 3})
    # 0.055 ÷ 0.104, and 0.038 ÷ 0.014, beside 67.32 ÷ 37.41 and 27.5 ÷ 4.8.
    assert cells["ratio"]["recomputed"][0]["value"].startswith("1.7995188")
    assert cells["ratio"]["difference"] == pytest.approx(0.055 / 0.104 / (67.32 / 37.41) - 1)
    assert update["cells"]["ratio"]["recomputed"][0]["value"].startswith("5.729166")
    assert update["cells"]["ratio"]["modelled"]["value"] == pytest.approx(0.038 / 0.014)
    # 37.41 s for 750,000 numbers; 4 requests move 4 MB in 48 ms.
    assert "49,880 ns a number" in cells["with"]["reason"]
    assert "3 gets and a set of 1.0 MB take 0.05 s at 100.0 MB/s" in cells["without"]["reason"]


def test_a_model_of_which_nothing_is_published_has_no_verdict() -> None:
    measured = made(models={"mobilenet": made().models["resnet18"]}, released=None)
    document = build(beside("sampled", "mobilenet"), measured)
    assert len(document["rows"]) == 4
    for row in document["rows"]:
        for cell in row["cells"].values():
            assert (cell["published"], cell["verdict"], cell["reason"], cell["recomputed"]) == (None, "", "", [])
        assert row["cells"]["without"]["modelled"]["value"] > 0


def test_ranges_are_printed_with_both_ends_and_small_times_with_three_digits() -> None:
    document = build(beside("replayed", "resnet18"), made())
    console = Console(width=160)
    with console.capture() as captured:
        console.print(render(reproduction(document)))
    text = captured.get()
    assert "0.100 (0.100 to 0.200)" in text
    assert "9.00 (8.00 to 16.00)" in text
    assert "≈0.014" in text


@pytest.mark.parametrize(
    ("ours", "verdict"), [(1.36, "agrees"), (2.24, "agrees"), (1.34, "differs"), (2.26, "differs")]
)
def test_a_ratio_agrees_within_a_quarter_of_the_printed_figures(ours: float, verdict: str) -> None:
    cells = [one for row in recompute(load_paper("barrak-2025"), "optimizations") for one in row]
    printed = next(one.value for one in cells if one.column == "ratio" and str(one.value).startswith("1.79"))
    assert Cell(follows=printed, modelled=middle([ours])).verdict == verdict
    assert Cell(modelled=middle([ours])).verdict == ""


@pytest.mark.server
def test_a_small_measurement_of_the_real_thing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measurements, "JSON_NUMBERS", 200)
    told: list[tuple[str, int, int]] = []
    found = measure_models(("lenet",), 3, 2, lambda *stage: told.append(stage))
    assert told == [(f"lenet, {name}", number, 2) for name in OPERATIONS for number in range(3)]
    known = found.models["lenet"]
    assert (known.parameters, found.gradients) == (61_706, 3)
    for samples in known.operations.values():
        assert set(samples) == {*NAIVE, IN_DATABASE}
        assert all(len(one.seconds) == 2 and min(one.seconds) > 0 for one in samples.values())
        assert min(samples[IN_DATABASE].script_cpu_s) > 0
    if find_server("redis-server"):
        assert found.released is not None
        assert len(found.released.json_bytes) == 3
        assert found.released.text_bytes > 10
    else:
        assert found.released is None
    assert STUDY.read(STUDY.write(found, tmp_path / "new").parent) == found


def fake(name: str, log: list[str], factor: float = 1.0) -> Arm:
    """An arm with a dictionary as its database; `factor` makes its results wrong."""
    vectors, stored = Vectors.random(8, 2), {}

    def put(key: str, vector: Vector) -> None:
        log.append(name)
        stored[key] = vector * np.float32(factor)

    vectors.store(lambda key, vector: stored.update({key: vector}))
    return naive_arm(name, ("gradient:0", "gradient:1"), lambda key: stored[key].copy(), put, running_mean)


def test_arms_take_turns_in_alternating_order_and_the_first_is_not_counted() -> None:
    log: list[str] = []
    pair = [fake("one", log), fake("two", log)]
    turns = take_turns(UPDATE, pair, Vectors.random(8, 2).expected[UPDATE], 2, lambda *_: None)
    assert log == ["one", "two", "two", "one", "one", "two"]
    assert [set(turn) for turn in turns] == [{"one", "two"}] * 2
    assert all(taken.seconds >= taken.moving["seconds"] > 0 for turn in turns for taken in turn.values())
    assert turns[0]["one"].moving is not turns[1]["one"].moving != {}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_wrong_result_ends_the_measurement(name: str) -> None:
    with pytest.raises(RunError, match=f"off: the {name} is wrong"):
        take_turns(name, [fake("off", [], 1.01)], Vectors.random(8, 2).expected[name], 1, lambda *_: None)


def test_both_means_are_means() -> None:
    def some() -> Iterator[Vector]:
        return (np.array([number, 1.0], np.float32) for number in (1, 2, 6))

    for mean in (stacked_mean, running_mean):
        np.testing.assert_allclose(mean(some()), [3, 1])


def test_a_median_has_the_least_and_the_greatest() -> None:
    assert asdict(middle([3.0, 1.0, 2.5])) == {"value": 2.5, "low": 1.0, "high": 3.0, "samples": 3}
    assert middle([3.0]).low is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "The file of measurements .* cannot be read"),
        ("{", "is not JSON"),
        ("[]", "has no entries"),
        ('{"schema": 2}', "has schema 2"),
        ('{"schema": 1}', "is wrong at measured"),
    ],
)
def test_a_file_that_holds_no_measurements_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "measurements.json").write_text(text)
    with pytest.raises(RequestError, match=message):
        STUDY.read(tmp_path)


def test_measurements_lacking_an_arm_or_a_turn_are_refused(tmp_path: Path) -> None:
    document = json.loads(made().model_dump_json(by_alias=True))
    average = document["models"]["resnet18"]["operations"][AVERAGE]
    average["redis-py"]["seconds"].pop()
    (tmp_path / "measurements.json").write_text(json.dumps(document))
    with pytest.raises(RequestError, match="average differ in their numbers of turns"):
        STUDY.read(tmp_path)
    del average["redis-py"]
    (tmp_path / "measurements.json").write_text(json.dumps(document))
    with pytest.raises(RequestError, match="average of redis-py is missing"):
        STUDY.read(tmp_path)


def test_the_command_measures_writes_and_reads_again(
    slslab: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[Any, ...]] = []

    def measure_nothing(*arguments: Any) -> Measurements:
        asked.append(arguments[:3])
        return made()

    monkeypatch.setattr(measurements, "measure_models", measure_nothing)
    where = str(tmp_path / "here")
    profile = ("--profile", "aws-us-east-1", "--json")
    code, out, err = slslab("reproduce", "in-database", "--model", "resnet18", "--out", where, *profile)
    assert (code, asked) == (0, [(("resnet18",), 24, 5)])
    assert "measurements.json" in err
    assert {path.suffix for path in Path(where).iterdir()} == {".json", ".csv", ".html"}
    first = json.loads(out)
    code, out, _ = slslab("reproduce", "in-database", "--fidelity", "replayed", "--recordings", where, *profile)
    second = json.loads(out)
    assert (code, first["fidelity"], second["fidelity"]) == (0, "sampled", "replayed")
    assert first["rows"] == second["rows"]


def test_wrong_requests_are_refused(slslab: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, _, err = slslab("reproduce", "in-database", "--recordings", str(tmp_path))
    assert (code, "needs --fidelity replayed" in err) == (2, True)
    code, _, err = slslab("reproduce", "in-database", "--fidelity", "replayed", "--recordings", str(tmp_path))
    assert (code, "The file of measurements" in err) == (2, True)
    monkeypatch.setattr("slslab_lab.studies.FOLDERS", ())
    code, _, err = slslab("reproduce", "in-database", "--fidelity", "replayed")
    assert (code, "The project's own in-database/measurements.json is missing." in err) == (1, True)

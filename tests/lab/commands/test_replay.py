"""`slslab replay` and `slslab ask`: documents, tables, pictures, and what is refused.

The run and the platform come from tests/lab/replay: as recorded there 0.58 s, at 3538 MB 0.38 s.
"""

import json
import math
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click
import pytest
from tests import commands
from tests.lab.replay.platform import platform
from tests.lab.replay.recordings import GRADIENT_BYTES, write_run

from slslab.cli.root import root
from slslab.predict.anchors import Z80
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import save_profile
from slslab.report.formats import span
from slslab_lab.commands.ask import QUESTIONS
from slslab_lab.questions.setup import read_setup
from slslab_lab.replay import whatif
from slslab_lab.replay.kernel.kernel import ReplayError

# What AllReduce, ScatterReduce and the GPU baseline do beside puts and gets.
OTHERS = (
    ("object.list", "synchronise"),
    ("object.delete", "synchronise"),
    ("reduce", "synchronise"),
    ("update", "update"),
    ("prepare", "fetch"),
    ("connect", "other"),
    ("build", "other"),
    ("serialise", "other"),
)


Slslab = Callable[..., commands.Done]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs and a profile: `small` is one of AllReduce, and `scattered` and `instances` are others."""
    root = tmp_path_factory.mktemp("replaying")
    write_run(root / "runs" / "small", others=OTHERS)
    write_run(root / "runs" / "scattered", "scatterreduce", OTHERS)
    save_profile(platform(), root / "round.toml")
    return root


@pytest.fixture
def slslab(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Slslab:
    """The command line on the platform with round figures."""
    monkeypatch.setenv("SLSLAB_RUNS", str(directory / "runs"))
    monkeypatch.chdir(directory)
    return commands.slslab


def values(document: Any, figure: str) -> list[float]:
    return [float(row[figure]["value"]) for row in document["rows"] if not row["trouble"]]


@pytest.fixture(scope="module")
def again(directory: Path) -> Path:
    """Another recording of the plan of `small`, in which worker 1 computed for 240 ms an epoch instead of 200."""
    return write_run(directory / "runs" / "again", others=OTHERS, computed=(100, 240), name="efgh")


def test_several_recordings_are_one_model_with_an_interval(slslab: Slslab, again: Path) -> None:
    alone = [slslab("replay", name, "--profile", "round.toml", "--json").document for name in ("small", "again")]
    document = slslab("replay", "small", again, "--profile", "round.toml", "--memory", "1769,3538", "--json").document
    assert [name[-4:] for name in document["recordings"]] == ["abcd", "efgh"]
    assert [row["label"] for row in document["rows"]] == ["measured", "as recorded, 2 workers", "1769 MB", "3538 MB"]
    measured, modelled, *_ = document["rows"]
    seconds = [one["rows"][1]["seconds"]["value"] for one in alone]
    assert seconds[1] - seconds[0] == pytest.approx(0.08)
    assert modelled["seconds"]["value"] == pytest.approx(sum(seconds) / 2)
    # Student's t of one degree of freedom is 3.078 at 90 %; of two values the deviation is their distance ÷ √2.
    half = 3.0777 * 0.08 / math.sqrt(2) * math.sqrt(1.5)
    spans = [float(row["seconds"]["value"]) for row in (one["rows"][0] for one in alone)]
    wide = 3.0777 * abs(spans[1] - spans[0]) / math.sqrt(2) * math.sqrt(1.5)
    assert measured["seconds"]["high"] - measured["seconds"]["value"] == pytest.approx(wide, rel=1e-3)
    # The processor was not measured, which is a wider error than the spread.
    own = alone[0]["rows"][1]["uncertainty"]["seconds"]["own"]
    assert math.expm1(Z80 * math.hypot(*own.values())) > half / modelled["seconds"]["value"]
    assert modelled["seconds"]["low"] < min(seconds) < max(seconds) < modelled["seconds"]["high"]
    assert modelled["uncertainty"]["seconds"]["own"].keys() == own.keys()
    # What is the same in both has none, and what has no uncertainty either.
    assert "low" not in measured["invocations"]
    assert "low" not in modelled["waiting_share"]
    table = slslab("replay", "small", "again", "--profile", "round.toml").out
    assert "Replay of 2 recordings" in table
    assert f"≈{span(modelled['seconds']['low'], modelled['seconds']['high'])}" in table
    assert "80 % ranges allow for errors in Lambda's processors, this machine's processor and the replay" not in table
    assert "80 % ranges allow for errors in this machine's processor and the replay" in " ".join(table.split())
    assert "slslab calibrate --processor" in " ".join(table.split())


@pytest.mark.parametrize(
    ("other", "says"), [("scattered", "are not recordings of one plan: architecture differs"), ("small", "given twice")]
)
def test_recordings_of_other_plans_do_not_combine(slslab: Slslab, other: str, says: str) -> None:
    done = slslab("replay", "small", other)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_measured_then_modelled_then_variants(slslab: Slslab) -> None:
    document = slslab("replay", "small", "--profile", "round.toml", "--json").document
    assert [row["label"] for row in document["rows"]] == ["measured", "as recorded, 2 workers"]
    assert document["rows"][0]["seconds"]["basis"] == "measured"
    assert document["profile"] == {"name": "round", "date": "2026-11-21"}
    more = slslab("replay", "small", "--profile", "round.toml", "--memory", "3538,256", "--json").document
    assert more["rows"][:2] == document["rows"]
    assert [row["variant"] for row in more["rows"][2:]] == [
        {"memory_mb": 3538, "threads": 2},
        {"memory_mb": 256, "threads": 1},
    ]
    assert more["rows"][2]["seconds"]["value"] < more["rows"][1]["seconds"]["value"]
    assert more["rows"][3]["trouble"] == "Refused: the run's functions used 300 MB at their peak."


def test_lists_are_combined_and_each_has_what_was_asked_for(slslab: Slslab) -> None:
    asked = ("--workers", "2,3", "--memory", "1769,3538", "--prices", "paper-2025", "--concurrency", "9")
    document = slslab("replay", "small", "--profile", "round.toml", *asked, "--json").document
    labels = [row["label"] for row in document["rows"]]
    assert labels == [
        "measured",
        "measured, priced by paper-2025",
        "as recorded, 2 workers",
        "1769 MB, 2 workers, concurrency 9, priced by paper-2025",
        "3538 MB, 2 workers, concurrency 9, priced by paper-2025",
        "1769 MB, 3 workers, concurrency 9, priced by paper-2025",
        "3538 MB, 3 workers, concurrency 9, priced by paper-2025",
    ]
    assert [row["bill"]["book"]["name"] for row in document["rows"]].count("paper-2025") == 5
    assert [row["invocations"] for row in document["rows"][3:]] == [
        {"value": count, "basis": "exact"} for count in (2, 2, 3, 3)
    ]
    plain, priced = document["rows"][2], document["rows"][3]
    assert plain["billed_seconds"] == priced["billed_seconds"]


def test_a_slow_worker_costs_what_the_others_wait(slslab: Slslab) -> None:
    document = slslab("replay", "small", "--straggler", "1:4", "--profile", "round.toml", "--json").document
    assert [row["label"] for row in document["rows"]][1:] == ["as recorded, 2 workers", "CPU time of worker 1 × 4"]
    for figure in ("seconds", "cost"):
        _, plain, slow = values(document, figure)
        assert slow > plain


def test_a_time_out_names_who_would_be_over_it(slslab: Slslab) -> None:
    arguments = ("replay", "small", "--profile", "round.toml", "--timeout", "0.4")
    document = slslab(*arguments, "--json").document
    assert values(document, "over_timeout") == [1, 1]
    assert [(one["function"], one["worker"]) for one in document["rows"][1]["late"]] == [("train", 1)]
    assert "Over the time-out of 0.4 s" in slslab(*arguments).out


def test_this_host_is_a_network(slslab: Slslab) -> None:
    document = slslab("replay", "small", "--profile", "round.toml", "--network", "this-host", "--json").document
    assert document["network"] == "this-host"
    assert document["rows"][-1]["label"] == "network of this-host"


def test_a_table_and_what_the_signs_mean(slslab: Slslab) -> None:
    done = slslab("replay", "small", "--profile", "round.toml", "--memory", "256,3538")
    assert done.code == 0
    assert "as recorded, 2 workers" in done.out
    assert "≈ modelled on round of 2026-11-21" in done.out
    assert "256 MB: Refused: the run's functions used 300 MB at their peak." in done.out
    assert "playing variants: 2 of 2" in done.err


@pytest.mark.parametrize("arguments", [("--memory", "1769,3538,5307"), ()])
def test_pictures_of_equal_figures_are_equal(slslab: Slslab, directory: Path, arguments: tuple[str, ...]) -> None:
    pictures = [directory / f"{name}{len(arguments)}.svg" for name in "ab"]
    for picture in pictures:
        assert slslab("replay", "small", "--profile", "round.toml", *arguments, "--plot", str(picture)).code == 0
    one, other = (picture.read_text() for picture in pictures)
    assert one == other
    assert "<svg" in one
    png = directory / f"{len(arguments)}.png"
    assert slslab("ask", "memory", "small", "--profile", "round.toml", "--plot", str(png)).code == 0
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("replay", "nothing"), 2, "There is no run 'nothing'"),
        (("replay", "small", "--memory", "127"), 2, "--memory 127 MB is out of range"),
        (("replay", "small", "--memory", "128,256"), 2, "used 300 MB at their peak, more than 256 MB"),
        (("replay", "small", "--workers", "4,,8"), 2, "--workers '4,,8' is not a list of whole numbers"),
        (("replay", "small", "--workers", "4097"), 2, "--workers 4,097 is out of range"),
        (("replay", "small", "--straggler", "2:3"), 2, "There is no worker 2: the run has 2 workers"),
        (("replay", "small", "--straggler", "1"), 2, "--straggler 1 is not a slow worker"),
        (("replay", "small", "--straggler", "1:nan"), 2, "--straggler 1:nan is not a slow worker"),
        (("replay", "small", "--network", "nowhere"), 2, "There is no profile 'nowhere'"),
        (("replay", "small", "--profile", "nowhere"), 2, "There is no profile 'nowhere'"),
        (("replay", "small", "--prices", "nowhere"), 2, "There is no price book 'nowhere'"),
        (("replay", "small", "--plot", "picture.txt"), 2, "picture.txt cannot be drawn"),
        (("ask", "patterns", "small", "small"), 2, "ran allreduce, and the first run allreduce"),
        (("ask", "cheapest", "small"), 2, "Missing option '--deadline'"),
        (("ask", "waiting", "small", "--memory", "1"), 2, "--memory 1 MB is out of range"),
        (("ask", "timeline", "small", "--perfetto", "/nowhere/t.json"), 2, "cannot be written"),
        (("ask", "timeline", "small"), 2, "The timeline needs a file"),
        (("ask", "timeline", "small", "--plot", "t.txt"), 2, "t.txt cannot be drawn"),
    ],
)
def test_what_is_refused(slslab: Slslab, arguments: tuple[str, ...], code: int, message: str) -> None:
    if "nowhere" not in arguments or "--profile" not in arguments:
        arguments = (*arguments, "--profile", "round.toml")
    done = slslab(*arguments)
    assert (done.code, message in done.err) == (code, True), done.err
    assert "Traceback" not in done.err


def test_a_trace_that_is_incomplete_is_a_run_that_failed(slslab: Slslab, directory: Path) -> None:
    path = write_run(directory / "torn")
    (path / "invocations.jsonl").write_text("")
    done = slslab("replay", str(path))
    assert done.code == 1
    assert "was never metered" in done.err
    assert "Hint:" in done.err


def test_a_run_that_never_ends_in_a_replay_is_named(slslab: Slslab, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise ReplayError("3 of 9 tracks never end.", "run the plan again.")

    monkeypatch.setattr(whatif, "play", never)
    done = slslab("replay", "small", "--profile", "round.toml")
    assert done.code == 1
    assert "allreduce-lenet-abcd cannot be replayed: 3 of 9 tracks never end." in done.err


def test_an_architecture_that_is_not_installed(slslab: Slslab, directory: Path) -> None:
    done = slslab("replay", str(write_run(directory / "strange", "strange")), "--profile", "round.toml")
    assert done.code == 2
    assert "The architecture 'strange' is not installed." in done.err


def test_the_cheapest_size_by_a_deadline(slslab: Slslab) -> None:
    arguments = ("ask", "cheapest", "small", "--profile", "round.toml", "--memory", "256,1769,3538")
    document = slslab(*arguments, "--deadline", "9", "--json").document
    slow, fast = values(document, "seconds")
    latest = [row["seconds"]["high"] for row in document["rows"] if not row["trouble"]]
    assert latest[0] > latest[1] > slow > fast
    for deadline, found, likely in ((latest[0], 1769, 1769), (latest[1], 3538, 1769), (slow, None, 1769)):
        done = slslab(*arguments, "--deadline", str(deadline), "--json")
        assert done.code == (found is None)
        answer = json.loads(done.out)
        assert (answer["cheapest"], answer["likely"]["memory_mb"]) == (found, likely)
    # The middle is as likely too long as too short, and the upper end of the range is too short by 10 %.
    assert answer["likely"]["likelihood"] == pytest.approx(0.5, abs=0.001)
    surely = slslab(*arguments, "--deadline", str(latest[0]), "--json").document
    assert surely["likely"]["likelihood"] == pytest.approx(0.9, abs=0.002)
    text = " ".join(slslab(*arguments, "--deadline", str(latest[1])).out.split())
    assert f"3,538 MB is the cheapest size that finishes in {latest[1]:g} s: ≈" in text
    assert "1,769 MB would be cheaper and finishes in time with a likelihood of " in text
    text = " ".join(slslab(*arguments, "--deadline", str(slow)).out.split())
    assert f"It can't be told whether a size finishes in {slow:g} s. 1,769 MB does with a likelihood of 50 %: ≈" in text
    done = slslab(*arguments, "--deadline", str(fast / 2))
    assert done.code == 1
    assert "No size finishes in" in done.out
    assert "the fastest is 3,538 MB" in done.out


def test_a_sweep_over_memory_sizes_refuses_those_below_the_peak(slslab: Slslab) -> None:
    document = slslab("ask", "memory", "small", "--profile", "round.toml", "--json").document
    assert [row["variant"]["memory_mb"] for row in document["rows"] if row["trouble"]] == [128, 256]
    shown = {row["variant"]["memory_mb"]: row for row in document["rows"] if not row["trouble"]}
    assert min(shown, key=lambda size: float(shown[size]["cost"]["value"])) == document["cheapest"]
    assert document["fastest"] in shown
    assert document["balanced"] in shown
    assert set(document["alike"]) == {"cheapest", "fastest", "balanced"}
    text = slslab("ask", "memory", "small", "--profile", "round.toml").out
    assert f"Cheapest: {document['cheapest']:,} MB, ≈" in text
    assert "Least cost × time: " in text
    for name, sizes in document["alike"].items():
        assert document[name] not in sizes
        assert all(f"{size:,}" in text for size in sizes)


@pytest.mark.parametrize("runs", [("small",), ("scattered",), ("small", "scattered"), ("scattered", "small")])
def test_where_patterns_cross(slslab: Slslab, directory: Path, runs: tuple[str, ...]) -> None:
    plot = directory / "patterns.svg"
    arguments = ("ask", "patterns", *runs, "--profile", "round.toml", "--workers", "2,4")
    document = slslab(*arguments, "--plot", str(plot), "--json").document
    assert plot.exists()
    assert document["gradient_bytes"] == GRADIENT_BYTES
    for row in document["rows"]:
        seconds = {name: one["value"] for name, one in row["step_seconds"].items()}
        slow, fast = max(seconds.values()), min(seconds.values())
        told = slow >= (1 + row["tie"]) * fast
        assert row["winner"] == (min(seconds, key=lambda name: seconds[name]) if told else None)
        assert all(one["low"] < one["value"] < one["high"] for one in row["step_seconds"].values())
        # 5 ms × 100 MB/s ÷ 1 MB
        assert row["latency_bandwidth_size"]["value"] == pytest.approx(0.5)
        (here,) = [span for span in row["intervals"] if span["begin"] <= 0.5 < span["end"]]
        assert (here["winner"] or None) == row["winner"]
    assert "latency × bandwidth ÷ size" in slslab(*arguments).out


def test_where_functions_and_instances_cross(slslab: Slslab, directory: Path) -> None:
    plot = directory / "gpu.svg"
    arguments = ("ask", "gpu", "small", "--profile", "round.toml", "--epochs", "1,1000")
    document = slslab(*arguments, "--plot", str(plot), "--json").document
    assert plot.exists()
    first, last = document["rows"]
    # An instance boots for 30 s and then computes 10 times as fast.
    assert first["functions"]["seconds"]["value"] < 30 < first["instances"]["seconds"]["value"]
    assert last["functions"]["seconds"]["value"] > last["instances"]["seconds"]["value"]
    (crossing,) = document["crossings"]
    low, high = crossing["seconds_range"]
    assert 1 < low <= crossing["seconds"] <= high < 1000
    assert (first["faster"], last["faster"]) == ("functions", "instances")
    assert f"which is faster changes at {low} to {high} epochs" in slslab(*arguments).out


def test_steps_that_do_not_tell_what_another_architecture_takes(slslab: Slslab, directory: Path) -> None:
    run = str(write_run(directory / "few"))
    done = slslab("ask", "gpu", run, "--profile", "round.toml")
    assert done.code == 2
    assert "The recording has no " in done.err
    assert "Hint: " in done.err


def test_how_much_of_the_bill_is_waiting(slslab: Slslab) -> None:
    document = slslab("ask", "waiting", "small", "--profile", "round.toml", "--workers", "4", "--json").document
    assert document["variant"] == "4 workers"
    total = sum(row["seconds"] for row in document["rows"])
    assert document["waiting_seconds"]["value"] == pytest.approx(total)
    assert 0 < total < document["billed_seconds"]["value"]
    assert 0 < float(document["waiting_cost"]["value"]) < float(document["cost"]["value"])
    for name in ("waiting_seconds", "waiting_cost", "billed_seconds", "cost"):
        assert document[name]["low"] < float(document[name]["value"]) < document[name]["high"]
    assert "are waiting" in slslab("ask", "waiting", "small", "--profile", "round.toml", "--memory", "3538").out


def test_the_critical_path_is_the_run(slslab: Slslab) -> None:
    document = slslab("ask", "path", "small", "--profile", "round.toml", "--json").document
    assert sum(row["seconds"]["value"] for row in document["rows"]) == pytest.approx(document["seconds"]["value"])
    assert document["summary"].startswith("The run's ")
    assert document["seconds"]["low"] < document["seconds"]["value"] < document["seconds"]["high"]
    assert "Critical path, modelled on round" in slslab("ask", "path", "small", "--profile", "round.toml").out


def test_a_timeline_for_perfetto(slslab: Slslab, directory: Path) -> None:
    path = directory / "timeline.json"
    document = slslab("ask", "timeline", "small", "--profile", "round.toml", "--perfetto", str(path), "--json").document
    assert (document["perfetto"], document["plot"]) == (str(path), None)
    assert json.loads(path.read_text())
    assert (
        "https://ui.perfetto.dev"
        in slslab("ask", "timeline", "small", "--profile", "round.toml", "--perfetto", str(path)).out
    )


def test_a_timeline_as_a_picture(slslab: Slslab, directory: Path) -> None:
    path = directory / "timeline.svg"
    said = slslab("ask", "timeline", "small", "--profile", "round.toml", "--plot", str(path))
    assert str(path) in said.out
    picture = path.read_text()
    assert picture.startswith("<svg")
    for text in ("worker 0", "worker 1", "seconds", "compute"):
        assert f">{text}</text>" in picture
    slslab("ask", "timeline", "small", "--profile", "round.toml", "--plot", str(path))
    assert path.read_text() == picture


def test_help_teaches_by_examples(slslab: Slslab) -> None:
    assert "slslab replay last --workers 8,64,1024" in slslab("replay", "--help").out
    questions = slslab("ask", "--help").out
    for name in ("cheapest", "memory", "patterns", "gpu", "model", "waiting", "path", "timeline"):
        assert f"slslab ask {name} last" in questions


def test_every_question_takes_what_its_command_offers() -> None:
    everywhere = {"other", "json_", "on", *signature(read_setup).parameters}
    for question in QUESTIONS:
        offered = {parameter.name for parameter in question.command().params} - everywhere
        answer = resolve_name(f"slslab_lab.questions.{question.answer}")
        elsewhere = {"plot"} if question.picture else set()
        elsewhere |= {"function", "kind"} if question.of_up else set()
        assert offered - elsewhere == signature(answer).parameters.keys() - {"asked"}


def test_all_commands_but_the_reproductions_of_tables_model_the_same_platform() -> None:
    def defaults(command: click.Command, path: str) -> Iterator[tuple[str, Any]]:
        for option in command.params:
            if isinstance(option, click.Option) and option.name == "profile":
                has_own = f"by default the run's --platform, or else {DEFAULT_PROFILE}" in str(option.help)
                yield path, "the run's own" if has_own else option.default
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from defaults(inner, f"{path} {name}")

    found = dict(defaults(root, "slslab"))
    of_tables = {path: profile for path, profile in found.items() if path.startswith("slslab reproduce ")}
    others = {path: profile for path, profile in found.items() if path not in of_tables}
    assert {"slslab replay", "slslab ask memory", "slslab atlas", "slslab calibrate"} <= others.keys()
    assert others["slslab atlas"] == DEFAULT_PROFILE
    assert set(others.values()) == {DEFAULT_PROFILE, "the run's own"}
    assert of_tables
    assert DEFAULT_PROFILE not in of_tables.values()

"""Pages as text: what they hold, what they leave out, and that data cannot become markup or script."""

import base64
import hashlib
import json
import math
import re
import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.emulator.report.test_run import ranges
from tests.lab.pages.reproduced import reproduction
from tests.lab.replay.recordings import TRACES

from slslab.cli.root import root
from slslab.report.formats import percent
from slslab.report.html.page import make_content, make_page
from slslab.report.page import Document
from slslab.report.summaries import advice
from slslab.run.bill import load_book
from slslab.run.directory import RunDirectory
from slslab.run.metrics import Rows
from slslab.run.run import Run
from slslab_lab.pages import charts, scales
from slslab_lab.pages.comparison import describe_comparison
from slslab_lab.pages.reproduction import agreement, describe_reproduction
from slslab_lab.pages.run_page import describe_run, leave_page, page_of
from slslab_lab.replay.modelled import model
from slslab_lab.replay.programs.recording import read_recording
from slslab_workers.architecture import title


class Parts(HTMLParser):
    """Elements of a page: their tags with attributes, headings, scripts and the policy."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.answers: list[str] = []
        self._within = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = "answer" if ("class", "answer") in attrs else tag
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within in ("h1", "h2"):
            self.headings.append(data)
        elif self._within == "script":
            self.scripts.append(data)
        elif self._within == "style":
            self.styles.append(data)
        elif self._within == "answer":
            self.answers.append(data)

    @property
    def policy(self) -> dict[str, str]:
        [meta] = [attrs for tag, attrs in self.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
        return dict(entry.split(" ", 1) for entry in str(meta["content"]).split("; "))

    @property
    def charts(self) -> list[dict[str, Any]]:
        return list(json.loads(self.scripts[0]))


def recording(name: str) -> Run:
    return Run(RunDirectory(TRACES / name))


def document(name: str) -> dict[str, Any]:
    return recording(name).summary()


def run_page(document: Document, events: Rows | None = None, live: str = "") -> str:
    return make_page(describe_run(document, events, ()), live)


def comparison_page(documents: Sequence[Document]) -> str:
    return make_page(describe_comparison(documents))


def reproduction_page(document: Document) -> str:
    return make_page(describe_reproduction(document))


def test_a_run_has_all_its_parts() -> None:
    parts = Parts(page_of(recording("mlless")))
    assert parts.headings[0] == "MLLess, LeNet-5 on digits"
    for heading in (
        "Timeline", "Phases per worker", "This host's seconds, priced", "Loss and accuracy", "Memory against the limit",
        "Communication", "Messages and bytes", "Invocations", "Host and what it enforced", "Parts and result",
    ):  # fmt: skip
        assert heading in parts.headings
    assert [chart["id"] for chart in parts.charts] == [
        "timeline", "phases", "loss", "accuracy", "memory", "communication",
    ]  # fmt: skip
    drawn = {attrs["id"]: attrs for tag, attrs in parts.tags if attrs.get("class") == "chart"}
    assert list(drawn) == [chart["id"] for chart in parts.charts]
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in drawn.values())


def test_a_run_that_stopped_early_says_how_many_epochs_it_trained() -> None:
    known = document("mlless")
    plan = {**known["plan"], "epochs": 80}
    stopped = {**known, "plan": plan, "epochs": 80, "epochs_trained": 11, "accuracy": [0.7, 0.81]}
    assert "<li>11 of 80 epochs</li>" in run_page(stopped)
    aimed = {**stopped, "plan": plan | {"until_accuracy": 0.8}}
    assert "<li>11 of 80 epochs (until 80 % accuracy)</li>" in run_page(aimed)
    assert "<li>80 epochs</li>" not in run_page(aimed)


def test_a_page_allows_what_it_holds_and_no_network() -> None:
    text = run_page(document("gpu"))
    parts = Parts(text)

    def hashed(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    assert parts.policy["default-src"] == "'none'"
    assert "connect-src" not in parts.policy
    assert parts.policy["script-src"].split() == [hashed(script) for script in parts.scripts[1:]]
    assert parts.policy["style-src"] == hashed(parts.styles[0])
    for tag, attrs in parts.tags:
        assert not any(name.startswith("on") or name == "style" for name in attrs), (tag, attrs)
        assert not str(attrs.get("href", "data:,")).startswith("http")
        assert "src" not in attrs
    assert len(text) < 1_500_000


def test_names_never_become_markup_or_script() -> None:
    evil = '</script><script>alert(1)</script><img src=x onerror="alert(1)">'
    found = {**document("allreduce"), "architecture": evil, "dataset": evil, "confinement": evil}
    events = recording("allreduce").events
    for event in events:
        event["function"] = evil
    parts = Parts(run_page(found, events))
    assert len(parts.scripts) == 3
    assert not [tag for tag, _ in parts.tags if tag == "img"]
    [timeline] = [chart for chart in parts.charts if chart["id"] == "timeline"]
    assert timeline["data"]["data"]["rows"][0][4] == evil


def test_a_loss_that_is_no_number_is_a_gap_in_its_chart() -> None:
    diverged = document("allreduce") | {"loss": [2.5, math.inf, math.nan]}
    (chart,) = (one for one in Parts(run_page(diverged)).charts if one["id"] == "loss")
    assert [row[-1] for row in chart["data"]["data"]["rows"]] == [2.5, None, None]


def test_a_run_that_has_just_begun_has_a_page() -> None:
    plan = document("allreduce")["plan"]
    begun = {"run": "r", "status": "running", "architecture": "allreduce", "model": "lenet", "dataset": "digits"}
    parts = Parts(run_page({**begun, "plan": plan}, live="/runs/r"))
    assert parts.charts == []
    assert parts.policy["connect-src"] == "'self'"
    assert ("html", {"lang": "en", "data-live": "/runs/r/content", "data-events": "/runs/r/events"}) in parts.tags
    content = make_content(describe_run({**begun, "plan": plan}, recording("allreduce").events, ()))
    assert [chart["id"] for chart in Parts(content).charts] == ["timeline", "communication"]


def test_what_must_be_known_stands_above() -> None:
    found = document("mobilenet-busy")
    text = run_page(found)
    assert Parts(text).answers[0].endswith(" [oversubscribed]")
    assert "this machine was overloaded. The functions waited for it for more than 2 % of their time" in text
    assert "The trace could not be read" in text
    assert "computed on CPU: times are no GPU" in run_page(document("gpu")).replace("Computed", "computed")
    error = {"type": "Runtime.OutOfMemory", "message": "killed", "hint": "more --memory."}
    assert "Runtime.OutOfMemory: killed\nHint: more --memory." in run_page(
        {**found, "status": "failed", "error": error}
    )
    events = recording("allreduce").events
    assert "Invocations waited for" not in run_page(found, events)
    waits = [{**events[0], "op": "host.wait", "start_ns": 0, "end_ns": 1_500_000_000}] * 2
    assert "Invocations waited for this host&#39;s memory (2 times, 3.000 s in all)" in run_page(found, events + waits)


def of_schema_2(name: str, *, oversubscribed: bool = False) -> dict[str, Any]:
    """A modelled run with its ranges, which documents of schema 1 do not have."""
    found = document(name)
    found["host"]["oversubscribed"] = oversubscribed
    replayed = found["lambda"]
    values = {name: replayed[name] for name in ("seconds", "billed_seconds")}
    own = ranges(**values, cost=float(replayed["cost"]["total"]))
    return found | {"lambda": replayed | own}


def test_where_no_function_ran_nothing_is_told_of_its_cpu_share() -> None:
    found = document("mlless")
    found["host"]["cpu_share_enforced"] = False
    assert "could not enforce" in page_of(recording("mlless").replace(document=found))
    text = page_of(recording("mlless").replace(document=found | {"invocations": 0}))
    assert "could not enforce" not in text
    assert "no function ran" in text


def test_a_page_begins_with_what_the_run_takes_and_costs_on_lambda() -> None:
    text = run_page(of_schema_2("mobilenet-idle"))
    parts = Parts(text)
    assert len(parts.answers) == 2
    assert parts.answers[0] == "On AWS Lambda (us-east-1, modelled): 14 to 21 s, 0.0013 to 0.0020 USD"
    assert "80 % ranges allow for errors in Lambda&#39;s processors, this machine&#39;s processor" in text
    assert "Half-widths of the 80 % ranges, with only one source of error each" in text
    assert "slslab calibrate --processor" in text
    # Then the key figures, the modelled ones first, and the bill before what this host used.
    first = text.index('<small class="basis b-modelled">modelled</small>')
    assert first < text.index('<small class="basis b-measured">measured</small>')
    assert parts.headings.index("Bill (us-east-1, modelled)") < parts.headings.index("Phases per worker")
    assert "Modelled on Lambda" in parts.headings
    assert sum("Bill" in heading for heading in parts.headings) == 1, "one bill"
    assert "<summary>This host&#39;s seconds, priced</summary>" in text


def test_a_page_tells_which_memory_size_is_cheaper_and_shows_both_timelines() -> None:
    found = document("mobilenet-idle")
    found |= {"lambda": model(read_recording(TRACES / "mobilenet-idle"), load_book("aws-us-east-1"))}
    parts = Parts(page_of(recording("mobilenet-idle").replace(document=found)))
    own = found["memory_mb"]
    best = min(found["lambda"]["memory_sizes"], key=lambda size: float(size["cost"]))
    assert best["memory_mb"] < own, "or the sentence would be another"
    # The replay's own errors are as large as the difference.
    waiting, told = parts.answers[1].split("; ")
    assert re.fullmatch(r"\d+ % of the billed time is waiting", waiting)
    assert told == f"{best['memory_mb']:,} MB may be cheaper, but the two can't be told apart."
    exact = {name: {"shared": {}, "own": {"the replay": 0.001}} for name in ("seconds", "billed_seconds", "cost")}
    certain = advice(found | {"lambda": found["lambda"] | {"uncertainty": exact}})
    assert re.search(
        rf"; {best['memory_mb']:,} MB would be (\d+ to )?\d+ % cheaper and (\d+ to )?\d+ % slower\.$", certain
    )
    sizes, modelled, measured = parts.charts[:3]
    assert (sizes["id"], modelled["id"], measured["id"]) == ("sizes", "timeline-modelled", "timeline")
    points = sizes["data"]["data"]["rows"]
    assert [row[3] for row in points if row[0] == "this run"] == [f"{own:,} MB"]
    longest = max(row[2] for row in modelled["data"]["data"]["rows"])
    assert longest == pytest.approx(found["lambda"]["seconds"], abs=1e-5)
    shown = [attrs["data-shows"] for tag, attrs in parts.tags if tag == "button"]
    assert shown == ["timeline-modelled", "timeline"]
    found["lambda"]["memory_sizes"] = [size for size in found["lambda"]["memory_sizes"] if size["memory_mb"] >= own]
    assert advice(found).endswith("; no other memory size would be 2 % cheaper.")
    assert "MB" not in advice(document("mobilenet-idle")), "a document that has no sizes"


def test_a_run_of_schema_1_states_no_error() -> None:
    text = run_page(document("mobilenet-idle"))
    assert re.fullmatch(
        r"On AWS Lambda \(us-east-1, modelled\): 17\.0 s, \$0\.0\d+ \[oversubscribed\]", Parts(text).answers[0]
    )
    assert "Recorded before ranges: `slslab replay RUN` gives one." in text


def test_a_run_that_is_not_modelled_says_why_in_the_place_of_its_figures() -> None:
    parts = Parts(run_page(document("allreduce")))
    assert parts.answers == [
        "On AWS Lambda: not modelled. It was recorded by a version without modelling; run `slslab replay`."
    ]
    assert "This host's seconds, priced" in parts.headings


def test_runs_are_compared_on_lambda_first() -> None:
    documents = [
        of_schema_2("mobilenet-idle"),
        of_schema_2("mobilenet-busy", oversubscribed=True),
        document("allreduce"),
    ]
    text = comparison_page(documents[:2])
    parts = Parts(text)
    assert ["fastest on AWS" in parts.answers[0], "cheapest on AWS" in parts.answers[1]] == [True, True]
    second = f"B {title(documents[1]['architecture'])}"
    assert f"This machine was overloaded during {second}" in text
    assert "2 things to know before believing the numbers" in text
    assert "Bill, modelled" in parts.headings
    [picture] = [chart for chart in parts.charts if chart["id"] == "cost-time"]
    rows = picture["data"]["data"]["rows"]
    assert [row[1] for row in rows] == [one["lambda"]["seconds"] for one in documents[:2]]
    ends = [one["lambda"]["ranges"] for one in documents[:2]]
    assert [row[4:8] for row in rows] == [
        [one[name][end] for name in ("seconds", "cost") for end in ("low", "high")] for one in ends
    ]
    assert len(picture["spec"]["layer"]) == 4, "points, texts, and a bar each way"
    assert text.index("time on AWS") < text.index("first to last")
    mixed = comparison_page(documents)
    assert "C AllReduce is not modelled;" in mixed
    assert "Bill, modelled" in Parts(mixed).headings


def test_a_comparison_has_the_difference_of_each_figure() -> None:
    documents = [document(name) for name in ("allreduce", "scatterreduce")]
    text = comparison_page(documents)
    parts = Parts(text)
    assert parts.headings[0] == "AllReduce and ScatterReduce"
    assert [("on this host" in answer, "most accurate" in answer) for answer in parts.answers] == [
        (True, False), (True, False), (False, True),
    ]  # fmt: skip
    billed = [one["billed_seconds"] for one in documents]
    assert percent(billed[1] / billed[0] - 1, "+.1") in text


def test_lines_that_lie_upon_each_other_are_all_seen() -> None:
    """Equal seeds give equal bits: the loss of three architectures is one line."""
    rows = [(name, epoch, 0.5 / epoch) for name in ("A", "C", "D") for epoch in (1, 2)] + [("B", 1, 0.1), ("B", 2, 0.2)]
    chart = charts.lines("loss", "", rows, scales.series_keys("ABCD"), ("epoch", "loss"))
    assert chart.spec["encoding"]["strokeWidth"]["scale"] == {"domain": ["A", "B", "C", "D"], "range": [8, 2, 5, 2]}


def test_an_architecture_has_one_colour_on_all_pages() -> None:
    def colours(*names: str) -> list[str]:
        return [key.colour for key in scales.series_keys(names)]

    assert colours("A AllReduce", "B SPIRT") == ["1", "4"]
    assert colours("GPU", "SPIRT", "ScatterReduce", "AllReduce", "MLLess") == ["5", "4", "2", "1", "3"]
    assert colours("A AllReduce", "B AllReduce") == ["1", "2"], "two runs of one are told apart"
    assert colours("sent", "received") == ["1", "2"]


def test_a_reproduction_has_its_cells_rankings_bills_and_curves() -> None:
    text = reproduction_page(reproduction())
    parts = Parts(text)
    assert [chart["id"] for chart in parts.charts] == [
        "agreement", "curve-0", "column-function_seconds-0", "column-total_cost-0",
    ]  # fmt: skip
    for words in (
        "15.44",
        "function_seconds * memory_mb / 1000 = 15.44 (rounding)",
        "6.00 (5.40 to 6.60)",
        "of 8",
        "Ranking: cost per epoch, MobileNet (USD): differs",
        "SPIRT 0.0660",
        "Lambda duration (the paper)",
        "Counted by the paper, and left out",
    ):
        assert words in text
    assert parts.answers == [
        "4 of 4 published numbers agree with ours; the median difference is 12 %.",
        "Modelled figures (≈) have no 80 % range: their error is only known from this table. It is 12 % on average "
        "and 24 % at most, over 4 figures.",
        "Ranking of cost per epoch, MobileNet: differs.",
        "2 of 4 printed numbers follow from the paper's own inputs.",
    ]
    for words in ("Which pattern is faster, and at which latency × bandwidth ÷ size", "above 0.5", "≈tie"):
        assert words in text


def test_figures_that_another_study_adds_have_ranges_of_their_own() -> None:
    sentences = [*agreement({**reproduction(), "further": []})]
    assert sentences[1].startswith("Modelled figures in the paper's rows (≈) have no 80 % range: their error is only")
    assert sentences[1].endswith(" Figures of GPU functions have one.")


def test_ranges_are_drawn_where_there_are_any() -> None:
    document = reproduction()
    for row in document["rows"]:
        row["cells"]["total_cost"]["measured"] = None
    charts = {chart["id"]: chart["spec"] for chart in Parts(reproduction_page(document)).charts}
    assert len(charts["column-function_seconds-0"]["layer"]) == 2
    assert len(charts["column-total_cost-0"]["layer"]) == 1


def test_why_figures_cannot_be_recomputed_is_told_once_a_column() -> None:
    document = reproduction()
    assert reproduction_page(document).count("it was measured") == 2, "once for each of two columns"
    assert "Cannot be recomputed: it was measured." in reproduction_page(document)
    for row in document["rows"]:
        row["cells"] = {"total_cost": row["cells"]["total_cost"]}
    document["rows"][0]["cells"]["total_cost"]["recomputed"][1]["reason"] = "the row has no price."
    text = reproduction_page(document)
    assert "Cannot be recomputed for SPIRT, MobileNet: the row has no price." in text
    assert "Cannot be recomputed for AllReduce, MobileNet: it was measured." in text


def test_orders_are_told_first_and_by_which_figures() -> None:
    orders = [
        {"order": "A ≤ B", "of": of, "verdict": verdict, "figures": "A 1; B 2"}
        for of, verdict in (("LR", "holds"), ("SVM", "does not hold"), ("EM", "holds"))
    ]
    text = reproduction_page({**reproduction(), "orders": orders})
    assert Parts(text).answers[0] == "A ≤ B: holds (LR and EM); does not hold (SVM)."
    assert text.index("card-orders") < text.index("card-curve-0")
    assert "A 1; B 2" in text


def test_a_reproduction_of_little_has_a_page() -> None:
    lists = ("columns", "rows", "rankings", "bills", "curves", "notes")
    bare: dict[str, list[Any]] = {name: [] for name in lists}
    assert Parts(reproduction_page({**reproduction(), **bare})).charts == []


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TRACES / "allreduce", tmp_path / "run"))


def test_report_writes_the_page_of_an_old_run(recorded: Path) -> None:
    done = CliRunner().invoke(root, ["report", str(recorded), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert Path(found["report"]) == recorded / "report.html"
    assert found["bytes"] == (recorded / "report.html").stat().st_size
    elsewhere = recorded.parent / "page.html"
    assert CliRunner().invoke(root, ["report", str(recorded), "--out", str(elsewhere)]).exit_code == 0
    assert elsewhere.read_text() == (recorded / "report.html").read_text()


def test_report_says_where_it_cannot_write(recorded: Path) -> None:
    done = CliRunner().invoke(root, ["report", str(recorded), "--out", str(recorded / "none" / "page.html")])
    assert re.match(r"/.*/page\.html cannot be written: No such file or directory\.", str(done.exception))


def test_a_run_stands_whatever_becomes_of_its_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert leave_page(page, Run(document=document("gpu"), events=[])) == {"file": "report.html", "error": None}
    assert page.exists()
    assert leave_page(tmp_path / "none" / "report.html", Run(document=document("gpu"), events=[]))["error"] == (
        f"{tmp_path}/none/report.html cannot be written: No such file or directory. Hint: choose another file."
    )
    assert leave_page(page, Run(document={}, events=[])) == {"file": None, "error": "KeyError: 'run'"}


def test_compare_writes_a_page(recorded: Path) -> None:
    page = recorded.parent / "compared.html"
    done = CliRunner().invoke(
        root, ["compare", str(recorded), str(TRACES / "scatterreduce"), "--html", str(page), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["runs"]) == 2
    assert Parts(page.read_text()).headings[0] == "AllReduce and ScatterReduce"

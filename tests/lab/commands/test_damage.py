"""A run directory that is damaged: every command that reads it says so in one sentence, and lists the other runs."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import slslab
from tests.lab.replay.recordings import write_log, write_run

from slslab.run.directory import RunDirectory

Damage = Callable[[Path], object]


def text(content: str) -> Damage:
    return lambda path: path.write_text(content)


def octets(content: bytes) -> Damage:
    return lambda path: path.write_bytes(content)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def column(name: str, value: Any) -> Damage:
    """Have another value in the last event."""

    def change(table: pa.Table) -> pa.Table:
        events = table.to_pylist()
        events[-1][name] = value
        return pa.Table.from_pylist(events, schema=table.schema)

    return table(change)


def flipped(path: Path) -> None:
    """Flip a bit in the first page's values, which only a checksum of the page tells."""
    content = bytearray(path.read_bytes())
    place = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content[place.data_page_offset + place.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def changed(*keys: str | int, to: Any) -> Damage:
    """Have another value at a place of the document, or of the first line's."""

    def damage(path: Path) -> None:
        first, *others = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        document = inner = json.loads(first)
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = to
        path.write_text("\n".join([json.dumps(document), *others]) + "\n")

    return damage


def without(*names: str) -> Damage:
    def damage(path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({k: v for k, v in line.items() if k not in names}) + "\n" for line in lines))

    return damage


def replaced(old: str, new: str) -> Damage:
    def damage(path: Path) -> None:
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new, 1))

    return damage


def table(change: Callable[[pa.Table], pa.Table]) -> Damage:
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def metadata(**values: str) -> Damage:
    return table(lambda t: t.replace_schema_metadata({f"slslab.{name}": value for name, value in values.items()}))


GARBAGE = octets(bytes(range(256)) * 4)
NESTED = text("[" * 100_000)
# A run that is done: the file that is damaged, and how.
DONE: Sequence[tuple[str, str, Damage]] = (
    ("run.json", "empty", text("")),
    ("run.json", "cut", cut),
    ("run.json", "directory", directory),
    ("run.json", "garbage", GARBAGE),
    ("run.json", "pipe", pipe),
    ("run.json", "nested", NESTED),
    ("run.json", "list", text("[1]")),
    ("run.json", "null", text("null")),
    ("run.json", "status alone", text('{"status": "done"}')),
    ("run.json", "status", changed("status", to="lost")),
    ("run.json", "workers", changed("workers", to="two")),
    ("run.json", "total", changed("cost", "total", to="much")),
    ("run.json", "line", changed("cost", "lines", 0, "amount", to=None)),
    ("run.json", "phases", changed("per_worker", 0, "phases", to={})),
    ("run.json", "plan", changed("plan", to={"run": "one"})),
    ("run.json", "details", changed("details", to={"deaths": [{}]})),
    ("run.json", "lambda", changed("lambda", to={"status": "modelled"})),
    ("run.json", "schema", changed("schema", to=3)),
    ("run.json", "instances", changed("instances", to=[{}])),
    ("run.json", "digests", changed("files", to={"plan.toml": 5})),
    ("run.json", "digits", text('{"workers": ' + "1" * 5000 + "}")),
    ("trace.parquet", "empty", text("")),
    ("trace.parquet", "cut", cut),
    ("trace.parquet", "directory", directory),
    ("trace.parquet", "garbage", GARBAGE),
    ("trace.parquet", "pipe", pipe),
    ("trace.parquet", "bit", flipped),
    ("trace.parquet", "negative", column("cpu_ns", -1)),
    ("trace.parquet", "great", column("start_ns", 1 << 62)),
    ("trace.parquet", "greater than an epoch", column("epoch", (1 << 31) - 1)),
    ("trace.parquet", "backwards", column("end_ns", 0)),
    ("trace.parquet", "number", column("event", 1 << 62)),
    ("trace.parquet", "cause", column("causes", [-1])),
    ("trace.parquet", "later cause", column("causes", [10**6])),
    ("trace.parquet", "no time", column("start_ns", None)),
    ("trace.parquet", "no operation", column("op", None)),
    ("trace.parquet", "no causes", column("causes", None)),
    ("trace.parquet", "no cause", column("causes", [None])),
    ("trace.parquet", "schema", metadata(schema="3", torn="0")),
    ("trace.parquet", "no schema", metadata()),
    ("trace.parquet", "no number", metadata(schema="two", torn="0")),
    ("trace.parquet", "column", table(lambda t: t.drop_columns(["start_ns"]))),
    ("trace.parquet", "type", table(lambda t: t.set_column(t.schema.get_field_index("op"), "op", t["start_ns"]))),
    ("invocations.jsonl", "directory", directory),
    ("invocations.jsonl", "garbage", GARBAGE),
    ("invocations.jsonl", "pipe", pipe),
    ("invocations.jsonl", "NaN", changed("duration_ms", to=float("nan"))),
    ("invocations.jsonl", "infinite", changed("cpu_share", to=float("inf"))),
    ("invocations.jsonl", "negative", changed("billed_ms", to=-1)),
    ("invocations.jsonl", "great", changed("start_ns", to=1 << 62)),
    ("invocations.jsonl", "nested", NESTED),
    ("invocations.jsonl", "prose", text("none\n")),
    ("invocations.jsonl", "kind", text("7\n")),
    ("invocations.jsonl", "member", without("memory_mb")),
    ("invocations.jsonl", "type", changed("billed_ms", to="5")),
    ("invocations.jsonl", "date", changed("started_at", to="today")),
    ("invocations.jsonl", "huge", changed("end_ns", to=10**30)),
    ("invocations.jsonl", "architecture", changed("architecture", to="sparc")),
)
# Of the commands that read it, `report` and so on take what is in the document.
PLAN: Sequence[tuple[str, str, Damage]] = (
    ("plan.toml", "empty", text("")),
    ("plan.toml", "cut", cut),
    ("plan.toml", "directory", directory),
    ("plan.toml", "garbage", GARBAGE),
    ("plan.toml", "absent", Path.unlink),
    ("plan.toml", "other members", text('title = "one"\n')),
    ("plan.toml", "one more", replaced("run =", 'colour = "red"\nrun =')),
    ("plan.toml", "type", replaced("workers = 2", 'workers = "2"')),
    ("plan.toml", "NaN", replaced("lr = 0.01", "lr = nan")),
    ("plan.toml", "options", replaced("[options]", "[[options]]")),
    ("plan.toml", "schema", replaced("schema = 2", "schema = 3")),
)
# A run whose command was killed.
LOG: Sequence[tuple[str, str, Damage]] = (
    ("trace.jsonl", "empty", text("")),
    ("trace.jsonl", "directory", directory),
    ("trace.jsonl", "garbage", GARBAGE),
    ("trace.jsonl", "nested", text("[" * 100_000 + "\n")),
    ("trace.jsonl", "no header", lambda path: path.write_text("".join(path.read_text().splitlines(True)[1:]))),
    ("trace.jsonl", "schema", changed("schema", to=3)),
    ("trace.jsonl", "no clock", changed("clock", to=None)),
    ("trace.jsonl", "broken line", replaced('"op":', '"op"')),
    ("trace.jsonl", "kind", replaced('"record":"event"', '"record":"thought"')),
    ("trace.jsonl", "member", replaced('"start_ns"', '"start"')),
    ("trace.jsonl", "huge", replaced('"bytes":0', f'"bytes":{10**30}')),
    ("trace.jsonl", "greater than a worker", replaced('"worker":0', f'"worker":{10**10}')),
    ("trace.jsonl", "NaN", replaced('"duration_ms":', '"duration_ms":"x","d":')),
)
READ = (("show",), ("report", "--out", "page.html"), ("compare", "sound"), ("bill",), ("export", "--to", "csv"))


def identified(damages: Sequence[tuple[str, str, Damage]]) -> pytest.MarkDecorator:
    ids = [f"{file}: {kind}" for file, kind, _ in damages]
    return pytest.mark.parametrize(("file", "kind", "damage"), damages, ids=ids)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run that is sound."""
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "sound")
    return tmp_path / "runs"


def refused(path: Path, *command: object) -> None:
    """Have a command end with one sentence that names the file, and a hint."""
    done = slslab(*command)
    assert done.code in (1, 2, 3), (command, done)
    assert done.out == ""
    message, hint = done.err.strip().splitlines()
    assert message.startswith("Error: ")
    assert str(path) in message, command
    assert hint.startswith("Hint: ")
    assert len(hint) > len("Hint: ")


def listed(damaged: Path, told: bool) -> None:
    done = slslab("runs", "--json")
    by_path = {one["status"] for one in done.printed["runs"]}
    assert "done" in by_path, "the sound run"
    assert done.code == (1 if told else 0)
    assert ("unreadable" in by_path) is told
    if told:
        assert str(damaged) in done.err
    assert slslab("runs").code == done.code
    assert slslab("show", "sound").code == 0, "another run's damage doesn't concern it"


@identified(DONE)
def test_a_run_that_is_done(runs: Path, file: str, kind: str, damage: Damage) -> None:
    del kind
    path = write_run(runs / "damaged") / file
    damage(path)
    # What is in the document needs no other file; a page says that it lacks the trace.
    without = {"run.json": (), "trace.parquet": ("show", "compare", "report"), "invocations.jsonl": ("show", "compare")}
    for command in READ:
        if command[0] in without[file]:
            assert slslab(command[0], path.parent, *command[1:]).code == 0
        else:
            refused(path, command[0], path.parent, *command[1:])
    refused(path, "replay", path.parent)
    refused(path, "check", path.parent)
    listed(path, file == "run.json")


@pytest.mark.parametrize("file", ["trace.parquet", "invocations.jsonl", "plan.toml", "run.json"])
def test_a_changed_file_of_a_run_is_noticed_by_its_digest(runs: Path, file: str) -> None:
    path = write_run(runs / "damaged")
    document = json.loads((path / "run.json").read_text())
    (path / "run.json").unlink()
    RunDirectory(path).finish(document)
    commands: tuple[tuple[str, ...], ...] = (("replay",), ("check",), ("export", "--to", "csv"), ("bill",))
    if file == "run.json":
        commands += (("show",), ("report",))
    for command in commands:
        assert "digest" not in slslab(command[0], path, *command[1:]).err
    text = (path / file).read_bytes()
    (path / file).write_bytes(text.replace(b"1", b"2", 1) if file == "run.json" else text + b"\n")
    for command in commands:
        refused(path / file, command[0], path, *command[1:])


@identified(PLAN)
def test_a_plan(runs: Path, file: str, kind: str, damage: Damage) -> None:
    """A finished run doesn't need it."""
    del kind
    path = write_run(runs / "damaged") / file
    damage(path)
    assert slslab("replay", path.parent).code == 0
    refused(path if path.exists() else path.parent, "run", f"{path.parent}/plan.toml")
    (path.parent / "run.json").unlink()
    for command in READ:
        refused(path, command[0], path.parent, *command[1:])
    listed(path, path.exists())


@identified(LOG)
def test_a_run_whose_command_was_killed(runs: Path, file: str, kind: str, damage: Damage) -> None:
    del kind
    write_log(runs / "damaged")
    path = runs / "damaged" / file
    damage(path)
    for command in READ:
        refused(path, command[0], path.parent, *command[1:])
    listed(path, False)


def test_a_trace_whose_lines_are_out_of_order_is_sorted(runs: Path) -> None:
    write_log(runs / "damaged")
    path = runs / "damaged" / "trace.jsonl"
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(lines)]) + "\n")
    assert slslab("show", path.parent).code == 0

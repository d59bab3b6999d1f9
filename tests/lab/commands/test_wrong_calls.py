"""Wrong calls of every command: one sentence that says what is wrong, a hint, exit code 2, and nothing begins."""

import socket
import stat
from pathlib import Path

import pytest
from tests.commands import slslab

from slslab.up.doctor import Finding, findings_table

BIG = "9" * 23
LONG = "x" * 5000
RUN = Path(__file__).parents[3] / "results" / "table2" / "mobilenet-scatterreduce"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("up --port 99999", "99999 is not in the range 0<=x<=65535"),
        ("up --port -1", "-1 is not in the range"),
        (f"up --s3-port {BIG}", "is not in the range"),
        ("up --memory-budget -5", "-5 is not in the range x>=128"),
        ("up --limit idle_s=-1", "The limit idle_s cannot be -1."),
        ("up --limit idle_s=nan", "The limit idle_s cannot be nan."),
        ("up --limit scaling_period_s=0", "The limit scaling_period_s cannot be 0."),
        ("up --limit init_s=1e400", "The limit init_s cannot be 1e400."),
        ("up --limit request_bytes=-1", "The limit request_bytes cannot be -1."),
        (f"up --limit processes={BIG}", f"The limit processes cannot be {BIG}."),
        (f"up --limit processes={LONG}", "The limit processes needs a whole number, not 'xxxx"),
        (f"run allreduce --seed {BIG}", f"seed is {BIG}."),
        (f"run spirt --workers {BIG}", f"workers is {BIG}."),
        ("run allreduce --epochs 0", "epochs is 0."),
        (f"run allreduce --batches {BIG}", "batches is"),
        ("run allreduce --lr nan", "lr is nan."),
        (f"run allreduce --memory {'1' * 5000}", "is not a valid integer"),
        (f"run allreduce --prices {LONG}", "is too long for a path"),
        ("run spirt --barrier-timeout inf", "barrier-timeout is inf."),
        ("run mlless --supervisor-memory -1", "The option supervisor-memory cannot be -1."),
        ("run mlless --supervisor-memory 0", "The option supervisor-memory cannot be 0."),
        ("run kubeml --job-memory 127", "--job-memory is 127 MB."),
        ("run gradssharding --aggregator-memory 10241", "--aggregator-memory is 10,241 MB."),
        ("run spirt --light-memory 1", "--light-memory is 1 MB."),
        (f"accuracy allreduce --seed {BIG}", f"seed is {BIG}."),
        (f"show {LONG}", "is too long for a path"),
        (f"compare {LONG} last", "is too long for a path"),
        (f"serve --runs {LONG}", "is too long for a path"),
        (f"compare {RUN} {RUN}", "A run is given twice."),
        (f"replay {RUN} --memory abc", "separate them by commas: --memory 128,10240."),
        (f"replay {RUN} --timeout nan", "nan is not a number"),
        (f"replay {RUN} --prices=", "There is no price book"),
        (f"replay {RUN} --workers 4,{'9' * 5000}", "is not a list of whole numbers"),
        (f"ask cheapest {RUN} --deadline nan", "nan is not a number"),
        ("reproduce table3 --target nan", "nan is not a number"),
        ("reproduce fig2 --profile=", "There is no profile"),
        (f"report {RUN} --out .", "cannot be written: Is a directory"),
        (f"report {RUN} --out=", "cannot be written: Is a directory"),
        (f"report {RUN} --out pipe", "pipe cannot be written"),
        (f"ask timeline {RUN} --perfetto=", "cannot be written"),
        (f"export {RUN} --to csv --out pipe", "pipe cannot be made"),
    ],
)
def test_a_wrong_call_is_one_sentence(command: str, says: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "pipe"))
        done = slslab(*command.split(), directory=tmp_path, variables={"SLSLAB_RUNS": str(tmp_path / "runs")})
    assert done.code == 2, done
    assert says in done.err
    assert done.err.count("Hint: ") == 1
    assert "Traceback" not in done.err
    assert stat.S_ISSOCK((tmp_path / "pipe").stat().st_mode), "what was there is there"
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_what_is_printed_keeps_its_brackets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from slslab.cli.terminal import Bar, print_document

    finding = Finding("containers", "missing", ":smile: [/]", "pip install 'slslab[docker]'")
    print_document({}, lambda: findings_table([finding]), as_json=False)
    Bar().say("[bold]x[/] :smile:")
    written = capsys.readouterr()
    assert "pip install 'slslab[docker]'" in written.out
    assert ":smile: [/]" in written.out
    assert written.err == "[bold]x[/] :smile:\n"
    done = slslab("export", RUN, "--to", "csv", "--out", tmp_path / "[red]")
    assert done.code == 0
    assert "[red]/runs.csv" in done.out

"""The options of `up` reach the process that `--detach` starts, by its command line."""

from dataclasses import fields
from pathlib import Path

import pytest

from slslab.cli.up import up
from slslab.errors import RequestError
from slslab.up.options import Options


def read(words: list[str]) -> Options:
    params = up.make_context("up", words).params
    return Options(**{known.name: params[known.name] for known in fields(Options)})


def test_every_option_but_credentials_is_read_from_the_command_line_that_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.json").touch()
    chosen = Options(
        port=0,
        s3_port=1,
        edge_port=0,
        limits=("idle_s=60", "memory_mb=3008"),
        account="mine.toml",
        template="json,torch",
        strict_packages=True,
        environment="ray",
        budget_mb=4096,
        code=(Path("."), Path("/")),
        tensor_databases=0,
        queue="auto",
        credentials=("test:secret",),
        function_policy=Path("policy.json"),
        faults=Path("faults.toml"),
    )
    assert all(getattr(chosen, known.name) != known.default for known in fields(Options))
    assert read([*chosen.arguments(), "--credentials", "test:secret"]) == chosen
    assert chosen.roots() == (tmp_path, Path("/"))
    assert "secret" not in "".join(chosen.arguments())
    assert read(Options().arguments()) == read([]) == Options()


def test_a_working_directory_that_is_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(RequestError, match="The working directory no longer exists"):
        Options().roots()

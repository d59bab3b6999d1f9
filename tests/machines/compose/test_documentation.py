"""docs/compose.md as a user follows it: its files are written and its commands run, in their order, in one shell.

Where the page says `validated`, a command that would pull an image is shown to Compose without being carried out.
"""

import doctest
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.containers import need_containers

from slslab.compose.network import CHANNELS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "compose.md"
BUILT = "slslab-hello:1"
DOWN = "slslab down"
FUNCTIONS = "label=slslab.emulator"
PORTS = (9001, 4566, 9000, 9010, 5672, 15672, 8000)
COMMAND_LIMIT_S = 300
BLOCK = re.compile(r"(<!-- validated.*?-->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# What a command exports is there for the next one.
SHELL = "set -o pipefail\n{}\ncode=$?\nenv --null > $0\nexit $code"
MATCHING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Step:
    """A command with the output that the page shows (none: any), or a file's text with its name."""

    command: str = ""
    shown: str = ""
    name: str = ""
    text: str = ""


def steps() -> list[Step]:
    """What the page says is to be done."""
    found = []
    for validated, language, text in BLOCK.findall(PAGE.read_text()):
        if language != "console":
            first, _, rest = text.partition("\n")
            found.append(Step(name=first.removeprefix("# "), text=rest))
            continue
        for command, shown in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            found.append(Step(validation(command) if validated else command, shown))
    return found


def validation(command: str) -> str:
    """The command of Compose that only reads what this one would do."""
    if " build " in command:
        return f"{command} --dry-run"
    dry, replaced = re.subn(r" (up|run) .*", " config --quiet", command)
    assert replaced == 1, f"how can `{command}` be validated?"
    return dry


class Shell:
    """A user's shell in a directory; variables that commands export stay."""

    def __init__(self, directory: Path, variables: dict[str, str]) -> None:
        self.directory = directory
        self.variables = variables

    def run(self, command: str) -> tuple[int, str]:
        """Exit code, and what is printed."""
        exported = self.directory / ".variables"
        process = subprocess.Popen(
            ["bash", "-c", SHELL.format(command), str(exported)],
            cwd=self.directory,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=COMMAND_LIMIT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        pairs = (entry.partition("=") for entry in exported.read_text().split("\0") if entry)
        self.variables = {name: value for name, _, value in pairs}
        return process.returncode, output


def engine(*words: str) -> list[str]:
    """The lines that a docker command prints."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def left(project: str) -> list[str]:
    """What the engine still has of the stack and of the functions in its network."""
    own = f"label=com.docker.compose.project={project}"
    return [
        *engine("ps", "--all", "--quiet", "--filter", own),
        *engine("ps", "--all", "--quiet", "--filter", f"network={project}_default"),
        *engine("network", "ls", "--filter", own, "--format", "{{.Name}}"),
        *engine("volume", "ls", "--filter", own, "--format", "{{.Name}}"),
    ]


@pytest.fixture
def project() -> Iterator[str]:
    """The name of a project for the default ports; whatever of it is still there afterwards is removed."""
    need_containers(compose=True)
    for port in PORTS:
        try:
            with socket.create_server(("127.0.0.1", port)):
                pass
        except OSError:
            pytest.skip(f"the page's ports are wanted, and something has {port}: docker ps, ss -ltnp")
    name = f"slslab-page-{secrets.token_hex(4)}"
    try:
        yield name
    finally:
        files = [word for file in ("docker-compose.yml", "compose/offline.yml") for word in ("-f", str(ROOT / file))]
        files += [word for channel in CHANNELS for word in ("--profile", channel)]
        down = ["docker", "compose", "-p", name, *files, "down", "--volumes", "--remove-orphans", "--timeout", "20"]
        stopped = subprocess.run(["docker", "compose", "-p", name, *files, "stop"], capture_output=True)
        # Functions' containers that an emulator could not end would hold the network.
        if functions := engine("ps", "--all", "--quiet", "--filter", f"network={name}_default", "--filter", FUNCTIONS):
            engine("rm", "--force", *functions)
        subprocess.run(down, capture_output=True, check=True)
        subprocess.run(["docker", "image", "rm", "--force", BUILT], capture_output=True)
        assert stopped.returncode == 0, stopped.stderr
        assert left(name) == []


@pytest.fixture
def shell(project: str, tmp_path: Path) -> Shell:
    """A shell in a view of this checkout; its Compose uses the images that are built here."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLSLAB_", "COMPOSE_"))}
    nothing = str(tmp_path / "nothing")
    return Shell(
        tmp_path,
        {
            **clean,
            "PATH": f"{tmp_path}/.venv/bin:{clean['PATH']}",
            "COLUMNS": "150",
            "COMPOSE_PROJECT_NAME": project,
            "COMPOSE_FILE": "docker-compose.yml:compose/offline.yml",
            "SLSLAB_STATE": str(tmp_path / "state"),
            # A user's own account stays out of it.
            "AWS_CONFIG_FILE": nothing,
            "AWS_SHARED_CREDENTIALS_FILE": nothing,
        },
    )


def test_every_command_of_the_page_is_found() -> None:
    commands = [step.command for step in steps() if step.command]
    assert len(commands) == len(re.findall(r"^\$ ", PAGE.read_text(), re.MULTILINE)) > 20
    assert not any("$ " in command for command in commands)
    assert DOWN in commands


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_the_page_does_what_it_says(shell: Shell, project: str) -> None:
    matches = doctest.OutputChecker().check_output
    for step in steps():
        if step.name:
            file = shell.directory / step.name
            file.parent.mkdir(exist_ok=True)
            file.write_text(step.text)
            continue
        code, output = shell.run(step.command)
        assert code == 0, f"$ {step.command}\n{output}"
        if step.shown:
            assert matches(step.shown, output, MATCHING), f"$ {step.command}\n{output}\nis not\n{step.shown}"
        if step.command == DOWN:
            assert left(project) == []
            assert not Path(shell.variables["SLSLAB_STATE"]).exists()
    assert left(project) == []

"""Signals end a command from its first imports on: in order, with the conventional exit code, and silently."""

import signal
import subprocess
import sys

import pytest

ENDINGS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
numbers = pytest.mark.parametrize("number", ENDINGS, ids=[number.name for number in ENDINGS])


def ended(program: str, *arguments: str) -> tuple[int, str, str]:
    """The end of a Python program in which no signal is ignored, as below a job that runs in the background."""
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heard + program]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr.strip()


@numbers
def test_while_the_commands_are_imported(number: signal.Signals) -> None:
    program = f"""
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            signal.raise_signal({number})

sys.meta_path.insert(0, Finder())
from slslab.cli.main import main
main()
"""
    assert ended(program, "runs") == (128 + number, "", "")


@pytest.mark.parametrize("module", ["slslab.installation", "slslab.cli.main", "slslab.host.interrupts"])
def test_while_python_m_slslab_is_imported(module: str) -> None:
    program = f"""
import runpy, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
runpy.run_module("slslab", run_name="__main__", alter_sys=True)
"""
    assert ended(program, "runs") == (130, "", "")


# A command that is there to be ended.
COMMAND = """
import click, collections, functools, io, operator, os, sys, threading, time, types
from slslab.cli import main, root

@click.command()
def wait():
    {body}

root.root.add_command(wait)
main.main()
"""


@numbers
def test_while_a_command_goes_on(number: signal.Signals) -> None:
    """What it holds is given back, also if more signals come; it is not asked twice."""
    body = f"""
    try:
        signal.raise_signal({number})
    finally:
        for again in {[int(one) for one in ENDINGS]}:
            signal.raise_signal(again)
        print("given back")
"""
    assert ended(COMMAND.format(body=body), "wait") == (128 + number, "given back\n", "")


def test_where_nothing_can_be_raised_it_is_raised_soon_afterwards() -> None:
    body = """
    class Collected:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    Collected()
    signal.pause()
"""
    assert ended(COMMAND.format(body=body), "wait") == (128 + signal.SIGTERM, "", "")


def test_where_an_exception_would_be_dropped_it_is_raised_soon_afterwards() -> None:
    """Python drops what a file's `close` raises in its destructor, without a word; responses of HTTP are files."""
    body = """
    class Response(io.RawIOBase):
        def close(self):
            signal.raise_signal(signal.SIGTERM)
            super().close()

    Response()
    time.sleep(60)
"""
    assert ended(COMMAND.format(body=body), "wait") == (128 + signal.SIGTERM, "", "")


def test_an_interrupt_leaves_no_lock_locked() -> None:
    """Not even a queue's, which urllib3 has for its connections: the requests that clean up would wait forever."""
    body = """
    lock = threading.Lock()
    # As if a signal came just after the lock has been taken: all of it in C, so that a handler's frame is __enter__.
    steps = map(operator.call, (lock.acquire, functools.partial(signal.raise_signal, signal.SIGINT)))
    taken = types.SimpleNamespace(acquire=lock.acquire, release=lock.release, __exit__=lock.__exit__)
    taken.__enter__ = functools.partial(collections.deque, steps)
    try:
        with threading.Condition(taken):
            time.sleep(60)
    finally:
        print(lock.locked())
"""
    assert ended(COMMAND.format(body=body), "wait") == (128 + signal.SIGINT, "False\n", "")


def test_a_wait_in_the_library_of_locks_is_interrupted() -> None:
    body = """
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    threading.Event().wait()
"""
    assert ended(COMMAND.format(body=body), "wait") == (128 + signal.SIGINT, "", "")


def test_other_errors_in_a_destructor_are_told() -> None:
    body = """
    class Collected:
        def __del__(self):
            raise ValueError("told")

    Collected()
"""
    code, _, told = ended(COMMAND.format(body=body), "wait")
    assert (code, told.splitlines()[-1]) == (0, "ValueError: told")


def test_after_a_command_has_ended() -> None:
    """What is registered for the interpreter's end, for instance threads that are waited for."""
    body = "import atexit; atexit.register(signal.raise_signal, signal.SIGINT)"
    assert ended(COMMAND.format(body=body), "wait") == (128 + signal.SIGINT, "", "")


@pytest.mark.parametrize("ignored", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_stays_so(ignored: signal.Signals) -> None:
    """SIGHUP below `nohup`, SIGINT in a job that a script has put into the background."""
    body = f"signal.raise_signal({ignored}); print('done')"
    program = f"signal.signal({ignored}, signal.SIG_IGN)\n" + COMMAND.format(body=body)
    assert ended(program, "wait") == (0, "done\n", "")

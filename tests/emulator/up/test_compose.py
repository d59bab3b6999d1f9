"""The keys and passwords of a compose stack that `slslab up` starts."""

import json
from pathlib import Path

import pytest

from slslab.compose import client
from slslab.compose.client import DEFAULT_PAIR, RemoteEmulator
from slslab.up import compose

NAMES = {*DEFAULT_PAIR, "SLSLAB_TENSORS_PASSWORD", "SLSLAB_QUEUE_PASSWORD"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own; no stack is up, and the user has set no keys."""
    monkeypatch.setenv("SLSLAB_STATE", str(tmp_path))
    monkeypatch.setenv("SLSLAB_EMULATOR_URL", "http://127.0.0.1:9")
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / client.STATE


def test_a_new_stack_has_random_ones() -> None:
    first, second = compose._key_variables(), compose._key_variables()
    assert first.keys() == second.keys() == NAMES
    assert not set(first.values()) & {*second.values(), *DEFAULT_PAIR.values()}
    assert len(set(first.values())) == len(NAMES)


def test_what_the_user_has_set_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLSLAB_QUEUE_PASSWORD", "mine")
    assert compose._key_variables()["SLSLAB_QUEUE_PASSWORD"] == "mine"


def test_a_stack_that_was_started_keeps_its_own(state: Path) -> None:
    kept = compose._key_variables()
    state.write_text(json.dumps({"command": [], "variables": kept}))
    assert compose._key_variables() == kept
    assert RemoteEmulator("http://127.0.0.1:9").pair.secret == kept["SLSLAB_SECRET_ACCESS_KEY"]


def test_a_stack_that_compose_started_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteEmulator, "about", lambda _self: {})
    assert compose._key_variables() == DEFAULT_PAIR
    monkeypatch.setenv("SLSLAB_ACCESS_KEY_ID", "mine")
    assert compose._key_variables() == {**DEFAULT_PAIR, "SLSLAB_ACCESS_KEY_ID": "mine"}

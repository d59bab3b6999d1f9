"""Limits of accounts: Lambda's, a new account's, and those in a file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slslab.aws.accounts import account_limits
from slslab.aws.limits import Range, lambda_limits
from slslab.errors import RequestError


def test_the_default_account_has_lambdas_limits() -> None:
    assert account_limits("default") == lambda_limits()


def test_a_new_account_has_less() -> None:
    assert account_limits("new") == replace(
        lambda_limits(), account_concurrency=10, unreserved_concurrency=10, memory_mb=Range(128, 3008, 128)
    )


def test_a_file_names_limits_and_options_come_last(tmp_path: Path) -> None:
    (tmp_path / "account.toml").write_text("account_concurrency = 50\ninit_s = 2.5\n")
    limits = account_limits(str(tmp_path / "account.toml"), {"account_concurrency": "7"})
    assert limits == replace(lambda_limits(), account_concurrency=7, init_s=2.5)
    assert limits.differences(lambda_limits()) == {"account_concurrency": 7, "init_s": 2.5}


def test_a_default_is_at_most_the_maximum() -> None:
    limits = account_limits("default", {"event_retries": 0, "timeout_s": 2, "memory_mb": 3008})
    assert (limits.event_retries, limits.timeout_s) == (Range(0, 0, 0), Range(1, 2, 2))
    assert limits.memory_mb.default == 128


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"none": 1}, "There is no limit 'none' that can be changed."),
        ({"version": "x"}, "There is no limit 'version' that can be changed."),
        ({"idle_s": "soon"}, "The limit idle_s needs a number, not 'soon'."),
        ({"idle_s": [1]}, "The limit idle_s needs a number, not '[1]'."),
        ({"idle_s": True}, "The limit idle_s needs a number, not 'True'."),
        ({"account_concurrency": True}, "The limit account_concurrency needs a whole number, not 'True'."),
        ({"account_concurrency": 10.9}, "The limit account_concurrency needs a whole number, not '10.9'."),
        ({"account_concurrency": float("inf")}, "The limit account_concurrency needs a whole number, not 'inf'."),
        ({"account_concurrency": "0"}, "The limit account_concurrency cannot be 0."),
        ({"memory_mb": 10_241}, "The limit memory_mb cannot be 10241."),
        ({"idle_s": "nan"}, "The limit idle_s cannot be nan."),
    ],
)
def test_what_no_account_can_have_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as caught:
        account_limits("default", changes)
    assert caught.value.message == told


def test_an_account_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="There is no account 'old'"):
        account_limits("old")
    (tmp_path / "account.toml").write_text("account_concurrency =")
    with pytest.raises(RequestError, match="is not TOML"):
        account_limits(str(tmp_path / "account.toml"))

"""The times of EventBridge's schedules, as its documentation has them."""

from datetime import UTC, datetime

import pytest

from slslab_aws.services.schedules import ScheduleError, read_schedule


def at(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "after", "due"),
    [
        ("rate(1 minute)", "2026-11-28 10:07", "2026-11-28 10:08"),
        ("rate(5 minutes)", "2026-11-28 10:07", "2026-11-28 10:12"),
        ("rate(1 hour)", "2026-11-28 23:07", "2026-11-29 00:07"),
        ("rate(7 days)", "2026-11-28 10:07", "2026-12-05 10:07"),
        # The examples of eb-scheduled-rule-pattern.html, except those with L, W and #.
        ("cron(0 10 * * ? *)", "2026-11-28 10:00", "2026-11-29 10:00"),
        ("cron(15 12 * * ? *)", "2026-11-28 10:00", "2026-11-28 12:15"),
        ("cron(0 18 ? * MON-FRI *)", "2026-11-28 10:00", "2026-11-30 18:00"),
        ("cron(0 8 1 * ? *)", "2026-11-28 10:00", "2026-12-01 08:00"),
        ("cron(0/15 * * * ? *)", "2026-11-28 10:01", "2026-11-28 10:15"),
        ("cron(0/10 * ? * MON-FRI *)", "2026-11-27 23:50", "2026-11-30 00:00"),
        ("cron(0/5 8-17 ? * MON-FRI *)", "2026-11-27 17:55", "2026-11-30 08:00"),
        ("cron(0/30 20-23 * * ? *)", "2026-11-28 23:30", "2026-11-29 20:00"),
        ("cron(*/20 * * * ? *)", "2026-11-28 10:41", "2026-11-28 11:00"),
        ("cron(5,7,50-52 * * * ? *)", "2026-11-28 10:07", "2026-11-28 10:50"),
        ("cron(0 0 29 FEB ? *)", "2026-11-28 00:00", "2028-02-29 00:00"),
        ("cron(0 0 ? JAN sun 2027-2028)", "2027-02-01 00:00", "2028-01-02 00:00"),
        ("cron(0 0 1 1 ? 2199)", "2026-11-28 00:00", "2199-01-01 00:00"),
        ("cron(30 6 31 OCT,DEC ? 2027,2199)", "2027-10-31 06:30", "2027-12-31 06:30"),
        ("cron(30 6 31 OCT,DEC ? 2027,2199)", "2027-12-31 06:30", "2199-10-31 06:30"),
    ],
)
def test_a_schedule_is_due(expression: str, after: str, due: str) -> None:
    assert read_schedule(expression)(at(after)) == at(due)


@pytest.mark.parametrize("expression", ["cron(0 0 1 1 ? 2020)", "cron(0 0 30 2 ? *)"])
def test_a_schedule_may_never_be_due(expression: str) -> None:
    assert read_schedule(expression)(at("2026-11-28 00:00")) is None


@pytest.mark.parametrize(
    "expression",
    [
        *("", "rate(1 minutes)", "rate(5 minute)", "rate(0 minutes)", "rate(-1 minutes)", "rate(1.5 hours)"),
        *("rate(5 seconds)", "rate(1  minute)", "rate(99999999999 days)", "at(2026-11-28T10:00:00)", "rate(1 minute) "),
        *("cron(* * * * *)", "cron(* * * * * *)", "cron(* * ? * ? *)", "cron(60 * * * ? *)", "cron(* 24 * * ? *)"),
        *("cron(* * 0 * ? *)", "cron(* * 32 * ? *)", "cron(* * * 13 ? *)", "cron(* * ? * 8 *)", "cron(* * ? * 0 *)"),
        *("cron(* * * * ? 1969)", "cron(* * * * ? 2200)", "cron(5-1 * * * ? *)", "cron(*/0 * * * ? *)"),
        *("cron(, * * * ? *)", "cron(- * * * ? *)", "cron(/5 * * * ? *)", "cron(x * * * ? *)"),
        *("cron(٣ * * * ? *)", "cron(* * * * ? *", "cron(99999 * * * ? *)"),
    ],
)
def test_what_is_no_schedule_is_refused(expression: str) -> None:
    with pytest.raises(ScheduleError, match=r"rate|cron"):
        read_schedule(expression)


@pytest.mark.parametrize("days", ["L * ?", "LW * ?", "15W * ?", "? * 2#1", "? * FRI#5", "? * 6L", "? * L"])
def test_special_characters_of_days_are_not_emulated(days: str) -> None:
    with pytest.raises(ScheduleError, match="slslab does not emulate L, W and #"):
        read_schedule(f"cron(0 0 {days} *)")

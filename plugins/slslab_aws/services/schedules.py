"""Read the schedules of EventBridge's rules, `rate(…)` and `cron(…)`, and find the times at which they are due.

https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html. Times are in UTC.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta

RATE = re.compile(r"rate\((\d{1,6}) (minute|hour|day)(s?)\)")
CRON = re.compile(r"cron\(\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*\)")
SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
DAYS = "SUN MON TUE WED THU FRI SAT".split()
LAST_YEAR = 2199


class ScheduleError(ValueError):
    """EventBridge doesn't accept this schedule; the message is a sentence without its full stop."""


Next = Callable[[datetime], datetime | None]


def schedule_problems(expression: str) -> Iterator[str]:
    """Yield the error of a schedule, without a full stop."""
    try:
        read_schedule(expression)
    except ScheduleError as error:
        yield str(error)


def read_schedule(expression: str) -> Next:
    """Return a function that maps a time to the next due time, or None. Raises ScheduleError."""
    if (rate := RATE.fullmatch(expression)) is not None:
        value, unit, plural = int(rate[1]), rate[2], rate[3]
        if value < 1 or (value == 1) == bool(plural):
            raise ScheduleError(f"{expression} is not a rate, such as rate(1 minute) or rate(5 minutes)")
        step = timedelta(seconds=value * SECONDS[unit])
        return lambda after: after + step
    if (found := CRON.fullmatch(expression)) is None:
        raise ScheduleError(f"{expression} is neither rate(VALUE UNIT) nor cron(MINUTES HOURS DAY MONTH WEEKDAY YEAR)")
    try:
        return _cron(*found.groups())
    except ValueError as error:
        raise ScheduleError(f"{expression} is not a schedule: {error}") from error


def _cron(minutes: str, hours: str, day: str, month: str, weekday: str, year: str) -> Next:
    if (day == "?") == (weekday == "?"):
        raise ValueError("one of day of month and day of week is ?, and the other is not")
    if {"L", "W"} & set(day) or "#" in weekday or weekday.endswith("L"):
        raise ValueError("slslab does not emulate L, W and #")
    days = _values(day, 1, 31) if weekday == "?" else []
    weekdays = _values(weekday, 1, 7, DAYS) if day == "?" else []  # Sunday is 1
    years, months = set(_values(year, 1970, LAST_YEAR)), set(_values(month, 1, 12, MONTHS))
    times = [time(hour, minute, tzinfo=UTC) for hour in _values(hours, 0, 23) for minute in _values(minutes, 0, 59)]

    def following(after: datetime) -> datetime | None:
        """Return the next time after one, to the minute, or None."""
        first = (after + timedelta(minutes=1)).replace(second=0, microsecond=0)
        date = first.date()
        while date.year <= LAST_YEAR:
            if date.year not in years:
                date = date.replace(date.year + 1, 1, 1)
            elif date.month not in months:
                date = (date.replace(day=1) + timedelta(days=31)).replace(day=1)
            else:
                if date.day in days or date.isoweekday() % 7 + 1 in weekdays:
                    for found in (datetime.combine(date, each) for each in times):
                        if found >= first:
                            return found
                date += timedelta(days=1)
        return None

    return following


def _values(text: str, least: int, most: int, names: list[str] | None = None) -> list[int]:
    """Return the values of a field: `*`, `1`, `1-5`, `0/15`, `*/5`, and lists of them."""
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = least, most
        else:
            begin = _number(first, least, most, names)
            end = _number(last, least, most, names) if dash else most if slash else begin
        if begin > end:
            raise ValueError(f"{span} ends before it begins")
        values.update(range(begin, end + 1, _number(step, 1, most) if slash else 1))
    return sorted(values)


def _number(text: str, least: int, most: int, names: list[str] | None = None) -> int:
    if names and text.upper() in names:
        return names.index(text.upper()) + 1
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII) or not least <= int(text) <= most:
        raise ValueError(f"{text or 'an empty field'} is not a number from {least} to {most}")
    return int(text)

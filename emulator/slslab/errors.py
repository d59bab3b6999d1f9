"""Define errors that a user sees: one sentence about what happened, and one about what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SlslabError(Exception):
    """An error with a hint; `exit_code` is the command line's."""

    exit_code = 1

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.add_note(f"Hint: {hint}")  # for tracebacks, for instance in tests
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type["SlslabError"], tuple[str, str]]:
        return type(self), (self.message, self.hint)


class RunError(SlslabError):
    """The run failed."""


class RequestError(SlslabError):
    """The request was wrong."""

    exit_code = 2


class HostError(SlslabError):
    """This host can't do it."""

    exit_code = 3


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, such as 1 run or 1,024 runs; `plural` if it isn't the noun and an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


@contextmanager
def writable(
    path: Path, hint: str, error: type[SlslabError] = RequestError, *, done: str = "written"
) -> Iterator[None]:
    """Raise an error with this hint if the block can't write (or what `done` says) the path.

    That is a RequestError for a path that the user named.
    """
    try:
        yield
    except OSError as reason:
        raise error(f"{path} cannot be {done}: {reason.strerror or reason}.", hint) from reason


def read_numbers(option: str, text: str | None, least: int, most: int, unit: str = "") -> tuple[int, ...]:
    """Return the numbers of a list such as 4,8,16; none of an empty one. RequestError if it is malformed or a number is
    out of range; `unit` is the sentence's, such as " MB"."""
    if not text:
        return ()
    try:
        numbers = tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise RequestError(
            f"{option} {text[:60]!r} is not a list of whole numbers.",
            f"separate them by commas: {option} {least},{most}.",
        ) from None
    for number in numbers:
        if not least <= number <= most:
            raise RequestError(
                f"{option} {number:,}{unit} is out of range.", f"choose from {least:,} to {most:,}{unit}."
            )
    return tuple(dict.fromkeys(numbers))

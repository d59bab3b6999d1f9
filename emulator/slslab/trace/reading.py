"""Read a run's files, each of which may be damaged: one sentence names the file and says what is wrong with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from slslab.errors import RunError


@contextmanager
def reading(path: Path, noun: str) -> Iterator[None]:
    """Raise RunError if the block cannot read the file, or finds by an error of Python's own that it is not `noun`."""
    hint = "the file was changed; mend it, or remove the run and make it again."
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.", hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "its top"
        raise RunError(f"{path} is not {noun}: {first['msg']} at {place}.", hint) from error
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise RunError(f"{path} is not {noun}: {reason}.", hint) from error

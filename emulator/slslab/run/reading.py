"""Read a run's files, and turn any damage into a RunError that names the file and the problem."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from slslab.errors import RunError

HINT = "restore the file, or remove its directory and run the command again."


@contextmanager
def reading(path: Path | str, noun: str) -> Iterator[None]:
    """Raise RunError if the block can't read the file, or raises one of Python's errors because it isn't `noun`.

    A string names a part of a file. A pipe or device is refused without reading it.
    """
    try:
        if isinstance(path, Path) and path.exists() and not path.is_file() and not path.is_dir():
            raise ValueError("it is a pipe, a socket or a device")
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.", HINT) from error
    except ValidationError as error:
        first = error.errors()[0]
        entry = ".".join(map(str, first["loc"])) or "its top"
        raise RunError(f"{path} is not {noun}: {first['msg']} at {entry}.", HINT) from error
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        said = f"it has no {error.args[0]}" if isinstance(error, KeyError) and error.args else str(error)
        reason = " ".join(said.split()).rstrip(".")
        raise RunError(f"{path} is not {noun}: {reason}.", HINT) from error

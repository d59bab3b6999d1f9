"""Context managers that are made of others."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Self


class Managed(ABC):
    """A context manager whose `_enter` registers on an exit stack all that must be undone at its end.

    If `_enter` raises, what it had registered until then is undone at once.
    """

    @abstractmethod
    def _enter(self, stack: ExitStack) -> None:
        """Acquire everything, and register on the stack how it is released."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._enter(stack)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._exit.close()

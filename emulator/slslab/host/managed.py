"""Build context managers from others."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Self


class Managed(ABC):
    """A context manager with an exit stack, on which `_enter` registers all that must be undone at the end.

    If `_enter` raises, whatever it has registered is undone at once.
    """

    @abstractmethod
    def _enter(self, stack: ExitStack) -> None:
        """Acquire everything, and register on the stack how to release it."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._enter(stack)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._exit.close()

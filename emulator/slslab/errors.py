"""Errors that a user sees: one sentence of what happened, one of what to do."""


class SlslabError(Exception):
    """An error with a hint; `exit_code` is what the command line ends with."""

    exit_code = 1

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RunError(SlslabError):
    """The run failed."""


class RequestError(SlslabError):
    """The request was wrong."""

    exit_code = 2


class HostError(SlslabError):
    """This host cannot do it."""

    exit_code = 3

"""Define how a script fails."""


class ScriptError(Exception):
    """A script isn't valid, or ended with an error; the text is Lua's, with the line if it is known."""


class OutOfMemory(Exception):
    """The script needs more memory than its limit; the runtime must not be used again."""

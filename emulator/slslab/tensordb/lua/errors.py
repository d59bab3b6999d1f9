"""How a script fails."""


class ScriptError(Exception):
    """A script is not valid, or ended with an error; the text is Lua's, with the place if it is known."""


class OutOfMemory(Exception):
    """The script needs more memory than it may have; the runtime must not be used again."""

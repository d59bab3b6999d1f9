"""Lua scripts as Redis 7 runs them: the commands, the sandbox, and the libraries that scripts find in it."""

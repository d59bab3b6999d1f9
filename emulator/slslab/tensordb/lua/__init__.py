"""Lua scripts as Redis 7 runs them: the sandbox and the libraries that they find in it."""

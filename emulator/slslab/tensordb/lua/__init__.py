"""Run Lua scripts like Redis 7, with its sandbox and libraries."""

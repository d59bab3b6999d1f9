"""Run Lua 5.1 with Redis's sandbox, for one peer.

Python functions are called with strings as bytes. They return True and results, False and a message, or None if Lua
lacks the memory for the results. They never raise: an exception would reach the script as a Python object, and running
out of memory outside Lua's own code ends the process.
"""

import ctypes
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NoReturn

from lupa import lua51

from slslab.tensordb.lua import structs
from slslab.tensordb.lua.arguments import LuaError, OutOfMemory, ScriptError, Value, measure

# Values passed between Lua and Python without checking memory fit into this, or into two thirds of a small limit.
MARGIN = 32 * 1024 * 1024
# A script's garbage is collected at once if there is more than this.
LITTER = 32 * 1024 * 1024
# Roughly what Lua needs per value in addition to its bytes.
VALUE_BYTES = 64
NUMBERS = b"0123456789+-.eE, \t\r\n"
GROUP = 1000
NO_MEMORY = b"not enough memory"
# Returns free memory to the host, except what the allocator keeps below memory in use.
TRIM = ctypes.CDLL(None).malloc_trim


class Runtime:
    """Compiles and runs scripts, one at a time.

    `call` executes a command for a script, given the words. It returns whether it succeeded, and its reply as a Lua
    value or the text of its error. `memory` is in bytes. `given` counts the bytes of the replies to the last script.
    """

    def __init__(self, call: Callable[[Sequence[bytes]], tuple[bool, Value]], memory: int) -> None:
        self._call = call
        self.given = 0
        self._lua: Any = lua51.LuaRuntime(
            encoding=None,
            attribute_filter=_deny,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            max_memory=memory,
        )
        self._most = memory - min(MARGIN, memory * 2 // 3)
        self._load = self._lua.eval(b"function(code, name) return assert(loadstring(code, name)) end")
        settings = self._lua.table_from({b"most_kb": self._most / 1024})
        self._compile, self._run = self._part("sandbox")(
            self._invoke,
            lambda data: hashlib.sha1(data).hexdigest().encode(),
            self._part("cjson")(self._read_numbers, self._write_numbers, settings),
            self._library(structs.FUNCTIONS),
            settings,
        )
        self._lua.execute(b"python, debug, os, io, package, require, module, dofile, loadfile, print = nil")

    def compile(self, body: bytes) -> Any:
        """Compile a script to a function; ScriptError if it isn't valid."""
        compiled = self._compile(body, b"@user_script")
        if isinstance(compiled, tuple):
            raise ScriptError(compiled[1].decode(errors="replace"))
        return compiled

    def run(self, script: Any, name: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> list[Value]:
        """Run a compiled script, which errors call `name`; return its result as tokens (see sandbox.lua).

        ScriptError or OutOfMemory if it fails.
        """
        self.given = 0
        if not self._fits(measure([*keys, *arguments])):
            raise OutOfMemory
        try:
            return self._result(script, name, keys, arguments)
        finally:
            self._collect()

    def _result(self, script: Any, name: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> list[Value]:
        try:
            ok, result, *location = self._run(script, self._lua.table_from(keys), self._lua.table_from(arguments))
            if ok:
                return list(result.values())
        except lua51.LuaMemoryError:
            raise OutOfMemory from None
        if result == NO_MEMORY:
            raise OutOfMemory
        where = f" script: {name}, on {location[0].decode(errors='replace')}:{location[1]}." if location else ""
        raise ScriptError(result.decode(errors="replace") + where)

    def _collect(self) -> None:
        """Free what a script has left. Each collection halves the buffer in which Lua joins texts."""
        used, before = self._lua.get_memory_used(), math.inf
        while LITTER < used < before:
            self._lua.gccollect()
            used, before = self._lua.get_memory_used(), used
        if before < math.inf:
            TRIM(0)

    def _part(self, name: str) -> Any:
        code = files(__package__).joinpath(f"{name}.lua").read_bytes()
        return self._load(code, b"=" + name.encode())

    def _fits(self, measured: tuple[int, int]) -> bool:
        """Return whether memory suffices for values, given their number and their bytes."""
        size = measured[0] * VALUE_BYTES + measured[1]
        if self._lua.get_memory_used() + size > self._most:
            self._lua.gccollect()
        return bool(self._lua.get_memory_used() + size <= self._most)

    def _invoke(self, *words: bytes) -> Any:
        ok, value = self._call(words)
        measured = measure(value)
        self.given += measured[1]
        return (ok, self._table(value)) if self._fits(measured) else None

    def _table(self, value: Value) -> Value:
        if isinstance(value, list):
            return self._lua.table_from([self._table(element) for element in value])
        if isinstance(value, dict):
            return self._lua.table_from({name: self._table(element) for name, element in value.items()})
        return value

    def _library(self, functions: Mapping[str, Callable[..., Value]]) -> Any:
        """Return functions as a table in the form that sandbox.lua expects."""

        def guarded(function: Callable[..., Value]) -> Callable[..., Any]:
            def called(*arguments: Value) -> Any:
                try:
                    result = function(*arguments)
                except LuaError as error:
                    return False, str(error).encode()
                except Exception as error:  # whatever the arguments, no Python object may reach the script
                    return False, f"{type(error).__name__}: {error}".encode()
                results = result if isinstance(result, tuple) else (result,)
                if not self._fits(measure([each for each in results if isinstance(each, bytes)])):
                    return None
                # Lua's numbers are doubles; an integer of more than 64 bits would not be converted.
                return True, *(float(each) if type(each) is int else each for each in results)

            return called

        return self._lua.table_from({name.encode(): guarded(function) for name, function in functions.items()})

    def _read_numbers(self, text: bytes) -> Any:
        """Return an array of numbers as a table; None if it contains anything else, or doesn't fit."""
        if text.translate(None, NUMBERS) != b"[]" or not self._fits((text.count(b","), 0)):
            return None
        try:
            return self._lua.table_from(json.loads(text, parse_int=float))
        except ValueError:
            return None

    def _write_numbers(self, array: Any, zeros: Any) -> bytes | None:
        """Return an array of numbers as JSON, with -0 at the positions `zeros`; None for others or too many."""
        numbers = list(array.values())
        for position in zeros.values():
            numbers[position - 1] = -0.0
        # Formatting many numbers at once takes two thirds of the time.
        groups = (tuple(numbers[at : at + GROUP]) for at in range(0, len(numbers), GROUP))
        text = b"[%b]" % b",".join(b",".join([b"%.14g"] * len(group)) % group for group in groups)
        # Python writes numbers that JSON lacks as inf or nan.
        return text if b"n" not in text and self._fits((1, len(text))) else None


def _deny(_object: object, _name: object, _setting: bool) -> NoReturn:
    raise AttributeError("Scripts see nothing of Python.")

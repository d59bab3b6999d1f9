-- A script's environment: Lua 5.1's own functions without files, modules and `debug`, Redis's functions, and read-only
-- tables. Returns the functions for Python.
local invoke, sha1hex, cjson, struct, settings = ...

local OWN = { ["=sandbox"] = true, ["=cjson"] = true }
local NO_MEMORY = "not enough memory"
local READ_ONLY = "Attempt to modify a readonly table"
local getinfo = debug.getinfo
local collectgarbage, error, getmetatable, loadstring, next = collectgarbage, error, getmetatable, loadstring, next
local pcall, rawget, rawset, select, setfenv, setmetatable = pcall, rawget, rawset, select, setfenv, setmetatable
local tonumber, tostring, type, unpack, xpcall = tonumber, tostring, type, unpack, xpcall
local byte, concat, find, floor, format = string.byte, table.concat, string.find, math.floor, string.format

-- Read-only tables: a script gets an empty table in front of each.

local behind = {}

local function read_only()
  error(READ_ONLY, 2)
end

local function freeze(contents, metatable)
  local front = setmetatable({}, { __index = contents, __newindex = read_only, __metatable = metatable or false })
  behind[front] = contents
  return front
end

-- Calls of Python. Lua doesn't watch the values on their way, and would panic without memory for them.

local function require_memory()
  if collectgarbage("count") > settings.most_kb then
    error(NO_MEMORY, 0)
  end
end

local function finish(ok, ...)
  if ok == nil then
    error(NO_MEMORY, 0)
  elseif not ok then
    error((...), 3)
  end
  return ...
end

local function library(functions)
  local wrapped = {}
  for name, call in pairs(functions) do
    wrapped[name] = function(...)
      require_memory()
      return finish(call(...))
    end
  end
  return wrapped
end

-- redis

local function refuse(message)
  return { err = "ERR " .. message }
end

local function command(...)
  local count = select("#", ...)
  if count == 0 then
    return false, refuse("Please specify at least one argument for this redis lib call")
  end
  local words = { ... }
  for place = 1, count do
    local kind = type(words[place])
    if kind == "number" then
      words[place] = format("%.17g", words[place])
    elseif kind ~= "string" then
      return false, refuse("Lua redis lib command arguments must be strings or integers")
    end
  end
  require_memory()
  local ok, reply = invoke(unpack(words, 1, count))
  if ok == nil then
    error(NO_MEMORY, 0)
  elseif not ok then
    return false, { err = reply, ignore_error_stats_update = true }
  end
  return true, reply
end

local function one_field(name)
  return function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return refuse("wrong number or type of arguments")
    end
    return { [name] = text }
  end
end

local redis = { status_reply = one_field("ok") }

function redis.call(...)
  local ok, reply = command(...)
  if not ok then
    error(reply)
  end
  return reply
end

function redis.pcall(...)
  local _, reply = command(...)
  return reply
end

function redis.error_reply(...)
  local reply = one_field("err")(...)
  local text = reply.err
  if byte(text) == 45 then
    text = text:sub(2)
  elseif not find(text, " ", 1, true) then
    text = "ERR " .. text
  end
  return { err = text, ignore_error_stats_update = true }
end

function redis.sha1hex(...)
  if select("#", ...) ~= 1 then
    error(refuse("wrong number of arguments"))
  end
  require_memory()
  return sha1hex(tostring((...)))
end

local function integer_argument(value, place, name)
  local number = tonumber(value)
  if not number then
    error(format("bad argument #%d to '%s' (number expected, got %s)", place, name, type(value)), 3)
  end
  return number < 0 and -floor(-number) or floor(number)
end

-- Lua's own functions that a script must not call directly.

local globals = {}
local missing = {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
}
local environment

local function compiled(source, name)
  if byte(source) == 27 then
    -- Code that was compiled elsewhere could crash the process; after a blank it counts as text, and is an error.
    source = " " .. source
  end
  if OWN[name] then
    name = "@user_script"
  end
  local chunk, complaint = loadstring(source, name)
  if not chunk then
    return nil, complaint
  end
  return setfenv(chunk, environment)
end

-- Redis's pcall returns the text of its own errors.
local function caught(ok, failure, ...)
  if not ok and type(failure) == "table" and type(failure.err) == "string" then
    return ok, failure.err
  end
  return ok, failure, ...
end

for _, name in ipairs({
  "assert", "error", "gcinfo", "ipairs", "next", "rawequal", "select", "setmetatable", "tonumber",
  "tostring", "type", "xpcall", "_VERSION",
}) do
  globals[name] = _G[name]
end

function globals.pcall(...)
  return caught(pcall(...))
end

function globals.pairs(...)
  local contents = ...
  if type(contents) ~= "table" then
    error(format("bad argument #1 to 'pairs' (table expected, got %s)",
      select("#", ...) == 0 and "no value" or type(contents)), 2)
  end
  return next, behind[contents] or contents, nil
end

-- Lua 5.1 counts in 32 bits, and would read beyond its stack.
local MOST_UNPACKED = 2 ^ 30

function globals.unpack(...)
  local contents, first, last = ...
  if type(contents) ~= "table" then
    error(format("bad argument #1 to 'unpack' (table expected, got %s)",
      select("#", ...) == 0 and "no value" or type(contents)), 2)
  end
  first = first == nil and 1 or integer_argument(first, 2, "unpack")
  last = last == nil and #contents or integer_argument(last, 3, "unpack")
  if first > last then
    return
  elseif not (first > -MOST_UNPACKED and last < MOST_UNPACKED) then
    error("too many results to unpack", 2)
  end
  return unpack(contents, first, last)
end

function globals.rawget(contents, name)
  return rawget(behind[contents] or contents, name)
end

function globals.rawset(contents, name, value)
  if behind[contents] then
    error(READ_ONLY, 0)
  end
  return rawset(contents, name, value)
end

function globals.getmetatable(...)
  return getmetatable(...) or nil
end

function globals.setmetatable(contents, ...)
  if behind[contents] then
    error(READ_ONLY, 0)
  end
  return setmetatable(contents, ...)
end

-- Its other options would outlive the script.
function globals.collectgarbage(option, ...)
  if option == nil or option == "collect" or option == "count" or option == "step" then
    return collectgarbage(option or "collect", ...)
  end
  return 0
end

function globals.loadstring(source, name)
  return compiled(source, name or source)
end

function globals.load(pieces, name)
  local parts = {}
  for part in pieces do
    if type(part) ~= "string" then
      return nil, "reader function must return a string"
    elseif part == "" then
      break
    end
    parts[#parts + 1] = part
  end
  return compiled(concat(parts), name or "=(load)")
end

globals.string = freeze(string)
globals.table = freeze(table)
globals.math = freeze(math)
globals.coroutine = freeze(coroutine)
globals.redis = freeze(redis)
globals.cjson = freeze(cjson)
globals.struct = freeze(library(struct))
setmetatable(globals, missing)
environment = freeze(globals, freeze(missing))
rawset(globals, "_G", environment)
getmetatable("").__index = globals.string
getmetatable("").__metatable = freeze({ __index = globals.string })

-- An error becomes a table with the place where it happened, if a tail call hasn't replaced its frame.
local function locate(failure)
  local level = 2
  local place = getinfo(level, "Sl")
  if place and place.what == "C" then
    level = 3
    place = getinfo(level, "Sl")
  end
  while place and (OWN[place.source] or place.what == "tail") do
    level = level + 1
    place = getinfo(level, "Sl")
  end
  if type(failure) ~= "table" or behind[failure] then
    failure = { err = "ERR " .. tostring(failure) }
  end
  if place and place.what ~= "C" then
    rawset(failure, "source", place.source)
    rawset(failure, "line", place.currentline)
  end
  return failure
end

rawset(globals, "__redis__err__handler", locate)

-- A reply as a list of tokens, read with rawget: each has a kind and a value, and a length precedes elements.

local DEEPEST = 200

local function flatten(value, tokens, depth)
  local kind = type(value)
  local count = #tokens
  if kind == "string" or kind == "number" or kind == "boolean" then
    tokens[count + 1], tokens[count + 2] = kind, value
    return tokens
  elseif kind ~= "table" then
    tokens[count + 1], tokens[count + 2] = "nil", false
    return tokens
  end
  if depth > DEEPEST then
    error(refuse("reached lua stack limit"))
  end
  for _, field in ipairs({ "err", "ok" }) do
    local member = rawget(value, field)
    if type(member) == "string" then
      tokens[count + 1], tokens[count + 2] = field, member
      return tokens
    end
  end
  local size = 0
  tokens[count + 1], tokens[count + 2] = "list", 0
  while true do
    local member = rawget(value, size + 1)
    if member == nil then
      break
    end
    size = size + 1
    flatten(member, tokens, depth + 1)
  end
  tokens[count + 2] = size
  return tokens
end

local function run(script, keys, arguments)
  rawset(globals, "KEYS", keys)
  rawset(globals, "ARGV", arguments)
  local ok, result = xpcall(script, locate)
  if ok then
    local value = result
    ok, result = xpcall(function()
      return flatten(value, {}, 1)
    end, locate)
  end
  rawset(globals, "KEYS", nil)
  rawset(globals, "ARGV", nil)
  if ok then
    return true, result
  elseif type(result) ~= "table" then
    return false, result
  end
  local text = rawget(result, "err")
  text = type(text) == "string" and text or "ERR unknown error"
  local source, line = rawget(result, "source"), rawget(result, "line")
  if type(source) == "string" and type(line) == "number" then
    return false, text, source, line
  end
  return false, text
end

return compiled, run

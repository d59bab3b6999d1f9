-- cjson as in Redis: lua-cjson 2.1, without its options. Python reads and writes long arrays of numbers, such as
-- gradients.
local read_numbers, write_numbers, settings = ...

local byte, char, concat, find, floor, format, gsub, sub =
  string.byte, string.char, table.concat, string.find, math.floor, string.format, string.gsub, string.sub
local collectgarbage, error, next, pcall, select, tonumber, tostring, type =
  collectgarbage, error, next, pcall, select, tonumber, tostring, type

local null = newproxy(true)
getmetatable(null).__tostring = function()
  return "userdata: (nil)"
end
getmetatable(null).__metatable = false

local LONG = 128
local KINDS = {
  ["{"] = "T_OBJ_BEGIN", ["}"] = "T_OBJ_END", ["["] = "T_ARR_BEGIN", ["]"] = "T_ARR_END", [","] = "T_COMMA",
  [":"] = "T_COLON",
}
local UNESCAPED = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }
local ESCAPED = { ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\127"] = "\\u007f" }
for code = 0, 31 do
  ESCAPED[char(code)] = format("\\u%04x", code)
end
ESCAPED["\b"], ESCAPED["\f"], ESCAPED["\n"], ESCAPED["\r"], ESCAPED["\t"] = "\\b", "\\f", "\\n", "\\r", "\\t"

local DEEPEST, SPARSEST, SAFE = 1000, 2, 10
local text

-- Failures are thrown as tables, so that the outermost function reports where it was called.

local function fail(expected, found, position)
  error({ format("Expected %s but found %s at character %d", expected, found, position) })
end

local function utf8(code)
  if code < 0x80 then
    return char(code)
  elseif code < 0x800 then
    return char(0xC0 + floor(code / 64), 0x80 + code % 64)
  elseif code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
    0x80 + code % 64)
end

-- Returns the character of an escape at the position of its `u`, and the position after it; nil without one.
local function unicode(position)
  local digits = find(text, "^%x%x%x%x", position + 1) and tonumber(sub(text, position + 1, position + 4), 16)
  if not digits or (digits >= 0xDC00 and digits < 0xE000) then
    return nil
  elseif digits < 0xD800 or digits >= 0xE000 then
    return utf8(digits), position + 5
  end
  local second = find(text, "^\\u%x%x%x%x", position + 5) and tonumber(sub(text, position + 7, position + 10), 16)
  if not second or second < 0xDC00 or second >= 0xE000 then
    return nil
  end
  return utf8(0x10000 + (digits - 0xD800) * 1024 + second - 0xDC00), position + 11
end

-- Tokens: each function returns a kind, a value, where the token begins, and the position after it.

local function string_token(start)
  local position = start + 1
  local plain = find(text, '["\\%z]', position)
  if plain and byte(text, plain) == 34 then
    return "T_STRING", sub(text, position, plain - 1), start, plain + 1
  end
  local parts = {}
  while true do
    local stop = find(text, '["\\%z]', position)
    if not stop or byte(text, stop) == 0 then
      return "unexpected end of string", nil, stop or #text + 1, 0
    end
    parts[#parts + 1] = sub(text, position, stop - 1)
    if byte(text, stop) == 34 then
      return "T_STRING", concat(parts), start, stop + 1
    end
    local letter = sub(text, stop + 1, stop + 1)
    if letter == "u" then
      parts[#parts + 1], position = unicode(stop + 1)
      if not position then
        return "invalid unicode escape code", nil, stop, 0
      end
    elseif UNESCAPED[letter] then
      parts[#parts + 1], position = UNESCAPED[letter], stop + 2
    else
      return "invalid escape code", nil, stop, 0
    end
  end
end

local function number_token(start)
  local _, stop = find(text, "^-?%d+", start)
  local follows = stop and byte(text, stop + 1)
  if stop and follows ~= 46 and follows ~= 69 and follows ~= 101 and follows ~= 88 and follows ~= 120 then
    return "T_NUMBER", tonumber(sub(text, start, stop)), start, stop + 1
  end
  local _, signed = find(text, "^[+-]?", start)
  if find(text, "^0[xX]%x", signed + 1) then
    local _, last = find(text, "^%x+", signed + 3)
    local value = tonumber(sub(text, signed + 3, last), 16)
    return "T_NUMBER", byte(text, start) == 45 and -value or value, start, last + 1
  end
  local word = sub(text, signed + 1, signed + 8):lower()
  local special = (sub(word, 1, 8) == "infinity" and 8) or (sub(word, 1, 3) == "inf" and 3)
    or (sub(word, 1, 3) == "nan" and 3)
  if special then
    local value = sub(word, 1, 3) == "inf" and math.huge or -(0 / 0)
    return "T_NUMBER", byte(text, start) == 45 and -value or value, start, signed + special + 1
  end
  local _, last = find(text, "^%d+%.?%d*", signed + 1)
  if not last then
    _, last = find(text, "^%.%d+", signed + 1)
  end
  if not last then
    return "invalid number", nil, start, 0
  end
  local _, exponent = find(text, "^[eE][+-]?%d+", last + 1)
  last = exponent or last
  return "T_NUMBER", tonumber(sub(text, start, last)), start, last + 1
end

-- Whether it is a number that JSON lacks, but strtod reads.
local function is_invalid(start)
  return find(text, "^%+", start) or find(text, "^-?0[xX%d]", start) or find(text, "^-?[iI][nN][fF]", start)
    or find(text, "^-?[nN][aA][nN]", start)
end

local function token(position)
  local start = find(text, "[^ \t\n\r]", position)
  if not start then
    return "T_END", nil, #text + 1, 0
  end
  local first = sub(text, start, start)
  if KINDS[first] then
    return KINDS[first], nil, start, start + 1
  elseif first == '"' then
    return string_token(start)
  elseif find(first, "[-%d]") then
    return number_token(start)
  elseif find(text, "^true", start) then
    return "T_BOOLEAN", true, start, start + 4
  elseif find(text, "^false", start) then
    return "T_BOOLEAN", false, start, start + 5
  elseif find(text, "^null", start) then
    return "T_NULL", null, start, start + 4
  elseif is_invalid(start) then
    return number_token(start)
  end
  return "invalid token", nil, start, 0
end

local SCALARS = { T_STRING = true, T_NUMBER = true, T_BOOLEAN = true, T_NULL = true }
local value

local function object(position, depth)
  local result = {}
  local kind, name, start, after = token(position)
  if kind == "T_OBJ_END" then
    return result, after
  end
  while true do
    if kind ~= "T_STRING" then
      fail("object key string", kind, start)
    end
    kind, _, start, after = token(after)
    if kind ~= "T_COLON" then
      fail("colon", kind, start)
    end
    _, result[name], _, after = value(after, depth)
    kind, _, start, after = token(after)
    if kind == "T_OBJ_END" then
      return result, after
    elseif kind ~= "T_COMMA" then
      fail("comma or object end", kind, start)
    end
    kind, name, start, after = token(after)
  end
end

local function array(position, depth)
  if find(text, "^%s*[-%d]", position) then
    local stop = find(text, "]", position, true)
    if stop and stop - position > LONG and collectgarbage("count") < settings.most_kb then
      local numbers = read_numbers(sub(text, position - 1, stop))
      if numbers then
        return numbers, stop + 1
      end
    end
  end
  local result, count = {}, 0
  local kind, _, start, after = token(position)
  if kind == "T_ARR_END" then
    return result, after
  end
  after = position
  while true do
    count = count + 1
    _, result[count], _, after = value(after, depth)
    kind, _, start, after = token(after)
    if kind == "T_ARR_END" then
      return result, after
    elseif kind ~= "T_COMMA" then
      fail("comma or array end", kind, start)
    end
  end
end

function value(position, depth)
  local kind, content, start, after = token(position)
  if kind == "T_OBJ_BEGIN" or kind == "T_ARR_BEGIN" then
    depth = depth + 1
    if depth > DEEPEST then
      error({ format("Found too many nested data structures (%d) at character %d", depth, start) })
    end
    content, after = (kind == "T_OBJ_BEGIN" and object or array)(after, depth)
  elseif not SCALARS[kind] then
    fail("value", kind, start)
  end
  return kind, content, start, after
end

local function document()
  if find(text, "^%z") or find(text, "^.%z") then
    error({ "JSON parser does not support UTF-16 or UTF-32" })
  end
  local _, result, _, after = value(1, 0)
  local kind, _, start = token(after)
  if kind ~= "T_END" then
    fail("the end", kind, start)
  end
  return result
end

-- Encoding: `parts` collects the text.

local function number_text(number)
  if number ~= number or number == math.huge or number == -math.huge then
    error({ "Cannot serialise number: must not be NaN or Inf" })
  end
  return format("%.14g", number)
end

local function quoted(content)
  return '"' .. gsub(content, '[%z\1-\31"\\/\127]', ESCAPED) .. '"'
end

-- Returns the length of an array, 0 for other tables. If it has only numbers, and `next` returns them in order, the
-- second result has the places of negative zeros, which Python takes for integers.
local function array_length(content)
  local most, count, zeros = 0, 0, {}
  for place, member in next, content do
    count = count + 1
    if place ~= count then
      zeros = nil
      if type(place) ~= "number" or place < 1 or floor(place) ~= place then
        return 0
      end
    end
    if place > most then
      most = place
    end
    if type(member) ~= "number" then
      zeros = nil
    elseif member == 0 and 1 / member < 0 and zeros then
      zeros[#zeros + 1] = place
    end
  end
  if most > count * SPARSEST and most > SAFE then
    error({ "Cannot serialise table: excessively sparse array" })
  end
  return most, zeros
end

local function append(content, parts, depth)
  local kind = type(content)
  if kind == "string" then
    parts[#parts + 1] = quoted(content)
  elseif kind == "number" then
    parts[#parts + 1] = number_text(content)
  elseif kind == "boolean" then
    parts[#parts + 1] = content and "true" or "false"
  elseif kind == "nil" or content == null then
    parts[#parts + 1] = "null"
  elseif kind ~= "table" then
    error({ "Cannot serialise " .. kind .. ": type not supported" })
  else
    depth = depth + 1
    if depth > DEEPEST then
      error({ format("Cannot serialise, excessive nesting (%d)", depth) })
    end
    local length, zeros = array_length(content)
    if zeros and length > LONG and collectgarbage("count") < settings.most_kb then
      local text = write_numbers(content, zeros)
      if text then
        parts[#parts + 1] = text
        return
      end
    end
    if length > 0 then
      for place = 1, length do
        parts[#parts + 1] = place == 1 and "[" or ","
        append(content[place], parts, depth)
      end
      parts[#parts + 1] = "]"
      return
    end
    local separator = "{"
    for name, member in next, content do
      if type(name) == "number" then
        parts[#parts + 1] = separator .. '"' .. number_text(name) .. '":'
      elseif type(name) == "string" then
        parts[#parts + 1] = separator .. quoted(name) .. ":"
      else
        error({ "Cannot serialise " .. type(name) .. ": table key must be a number or string" })
      end
      separator = ","
      append(member, parts, depth)
    end
    parts[#parts + 1] = separator == "{" and "{}" or "}"
  end
end

-- The functions of the library.

local library = { null = null }

local function only(name, level, count)
  if count ~= 1 then
    error(format("bad argument #1 to '%s' (expected 1 argument)", name), level + 1)
  end
end

local function result_of(ok, result)
  if ok then
    return result
  elseif type(result) == "table" then
    error(result[1], 3)
  end
  error(result, 0)
end

function library.decode(...)
  only("decode", 2, select("#", ...))
  local given = ...
  if type(given) ~= "string" and type(given) ~= "number" then
    error(format("bad argument #1 to 'decode' (string expected, got %s)", type(given)), 2)
  end
  text = tostring(given)
  local ok, result = pcall(document)
  text = nil
  return result_of(ok, result)
end

function library.encode(...)
  only("encode", 2, select("#", ...))
  local parts = {}
  local ok, failure = pcall(append, (...), parts, 0)
  return result_of(ok, ok and concat(parts) or failure)
end

return library

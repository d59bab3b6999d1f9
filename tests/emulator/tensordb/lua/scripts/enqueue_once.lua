-- Appends the jobs that have not been seen; their identity is the hash of their text.
local added = {}
for place, text in ipairs(ARGV) do
  local identity = redis.sha1hex(text)
  if redis.call('SADD', KEYS[2], identity) == 1 then
    added[place] = redis.call('RPUSH', KEYS[1], text)
  else
    added[place] = identity:sub(1, 8)
  end
end
return added

-- At most ARGV[1] requests in ARGV[2] seconds.
local current = redis.call('INCR', KEYS[1])
if current == 1 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
if current > tonumber(ARGV[1]) then
  return redis.error_reply('LIMITED ' .. redis.call('TTL', KEYS[1]))
end
return tonumber(ARGV[1]) - current

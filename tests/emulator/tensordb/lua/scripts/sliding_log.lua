-- At most ARGV[3] requests in the ARGV[2] ms before ARGV[1].
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
while true do
  local oldest = redis.call('LINDEX', KEYS[1], -1)
  if not oldest or tonumber(oldest) > now - window then
    break
  end
  redis.call('RPOP', KEYS[1])
end
local count = redis.call('LLEN', KEYS[1])
if count >= limit then
  return {0, count, tonumber(redis.call('LINDEX', KEYS[1], -1)) + window - now}
end
redis.call('LPUSH', KEYS[1], now)
redis.call('PEXPIRE', KEYS[1], window)
return {1, count + 1, false}

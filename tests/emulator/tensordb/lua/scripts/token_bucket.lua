-- KEYS[1] is a bucket of ARGV[1] tokens, ARGV[2] of which come every second; takes ARGV[4] at the time ARGV[3].
local capacity, rate, now, asked = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(bucket[1]) or capacity
local at = tonumber(bucket[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - at) * rate)
local allowed = tokens >= asked
if allowed then
  tokens = tokens - asked
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate) * 2)
return {allowed, tostring(tokens), redis.call('HGET', KEYS[1], 'tokens')}

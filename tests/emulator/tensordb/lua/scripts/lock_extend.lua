-- As redis-py's Lock extends.
local token = redis.call('get', KEYS[1])
if not token or token ~= ARGV[1] then
  return 0
end
local expiration = redis.call('pttl', KEYS[1])
if not expiration then
  expiration = 0
end
if expiration < 0 then
  return 0
end
local newttl = ARGV[2]
if ARGV[3] == "0" then
  newttl = ARGV[2] + expiration
end
redis.call('pexpire', KEYS[1], newttl)
return 1

-- The mean of float32 vectors, as bytes; the last of ARGV[1] workers computes it.
redis.call('RPUSH', KEYS[1], ARGV[2])
if redis.call('LLEN', KEYS[1]) < tonumber(ARGV[1]) then
  return false
end
local vectors = redis.call('LRANGE', KEYS[1], 0, -1)
local size = #vectors[1] / struct.size('<f')
local mean = {}
for place = 0, size - 1 do
  local sum = 0
  for _, vector in ipairs(vectors) do
    sum = sum + struct.unpack('<f', vector, 4 * place + 1)
  end
  mean[#mean + 1] = struct.pack('<f', sum / #vectors)
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], table.concat(mean))
return {size, #vectors, redis.call('GET', KEYS[2])}

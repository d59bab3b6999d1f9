-- Reserves all of an order or nothing of it.
local order = cjson.decode(ARGV[1])
local names = {}
for name in pairs(order) do
  names[#names + 1] = name
end
table.sort(names)
for _, name in ipairs(names) do
  local stock = tonumber(redis.call('HGET', KEYS[1], name) or '0')
  if stock < order[name] then
    return {err = string.format('OUTOFSTOCK %s: %d of %d', name, stock, order[name])}
  end
end
for _, name in ipairs(names) do
  redis.call('HINCRBY', KEYS[1], name, -order[name])
end
return redis.status_reply('RESERVED')

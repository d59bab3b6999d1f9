-- The weighted mean of gradients by layer; layers may be missing in some, and a gradient may say that it skips.
local sums, weights = {}, {}
for _, text in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local update = cjson.decode(text)
  if not update.skip then
    for layer, gradient in pairs(update.layers) do
      if gradient ~= cjson.null then
        sums[layer] = sums[layer] or {}
        for place, value in ipairs(gradient) do
          sums[layer][place] = (sums[layer][place] or 0) + update.weight * value
        end
        weights[layer] = (weights[layer] or 0) + update.weight
      end
    end
  end
end
local reply = {}
for layer, sum in pairs(sums) do
  for place = 1, #sum do
    sum[place] = sum[place] / weights[layer]
  end
  redis.call('HSET', KEYS[2], layer, cjson.encode(sum))
  reply[#reply + 1] = layer .. '=' .. cjson.encode(sum)
end
table.sort(reply)
return reply

-- As SPIRT's released functions: the mean of the JSON gradients of a list, stored by the rank.
local gradients = redis.call('LRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1)
local count = #gradients
local mean = {}
for index, text in ipairs(gradients) do
  local gradient = cjson.decode(text)
  for place = 1, #gradient do
    mean[place] = (mean[place] or 0) + gradient[place]
  end
end
for place = 1, #mean do
  mean[place] = mean[place] / count
end
local result = cjson.encode(mean)
redis.call('SET', 'averaged_gradient_' .. ARGV[2], result)
return result

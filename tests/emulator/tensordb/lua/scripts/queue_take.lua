-- Moves up to ARGV[1] jobs to a worker's list and notes each one's attempt.
local taken = {}
for _ = 1, tonumber(ARGV[1]) do
  local text = redis.call('RPOPLPUSH', KEYS[1], KEYS[2])
  if not text then
    break
  end
  local ok, job = pcall(cjson.decode, text)
  if ok and type(job) == 'table' then
    job.attempt = redis.call('HINCRBY', KEYS[3], job.id, 1)
    taken[#taken + 1] = job.id .. ':' .. job.attempt .. ':' .. cjson.encode(job.payload or cjson.null)
  else
    redis.call('LREM', KEYS[2], 1, text)
    taken[#taken + 1] = {err = 'BADJOB ' .. tostring(job)}
  end
end
return taken

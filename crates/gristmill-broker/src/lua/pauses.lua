-- pauses: what of a queue is paused now, by this clock.
-- KEYS 1 paused (hash of the queue; see pause.lua)
-- ARGV none
-- Reply {'ok', now (ms), {what, pause ...}}
-- Repeated: the same. Pauses whose end has come are removed.
redis.call('HDEL', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all, living = redis.call('HGETALL', KEYS[1]), {}
for n = 1, #all, 2 do
  local ends = tonumber(string.match(all[n + 1], '^%d+ (%d+) ') or '0')
  if ends ~= 0 and ends <= now then
    redis.call('HDEL', KEYS[1], all[n])
  else
    living[#living + 1] = all[n]
    living[#living + 1] = all[n + 1]
  end
end
return {'ok', now, living}

-- resume: what was paused may start again.
-- KEYS 1 paused (hash of the queue; see pause.lua)
-- ARGV 1 what
-- Reply {'resumed', the pause as it stood} | {'nothing'} it is not paused, or its end has come
-- Repeated: 'nothing'.
redis.call('HDEL', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before then return {'nothing'} end
redis.call('HDEL', KEYS[1], ARGV[1])
local ends = tonumber(string.match(before, '^%d+ (%d+) ') or '0')
if ends ~= 0 and ends <= now then return {'nothing'} end
return {'resumed', before}

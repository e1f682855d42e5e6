-- pause_schedule: a person pauses a schedule: no slot of it is fired.
-- KEYS 1 stream (stream)  2 paused (hash)
-- ARGV 1 name of the schedule  2 who  3 why (both without line ends)
-- Reply {'paused', Redis ms} | {'already', pause}: it was, and stays as it was: '<since ms>', who and why, a line each
-- Repeated: 'already'. The pause outlives the record: it holds also for a schedule that no node has defined yet.
redis.call('XACK', KEYS[1], 'workers', '0-0')
local before = redis.call('HGET', KEYS[2], ARGV[1])
if before then return {'already', before} end
local now = now_ms()
redis.call('HSET', KEYS[2], ARGV[1], now .. '\n' .. ARGV[2] .. '\n' .. ARGV[3])
return {'paused', now}

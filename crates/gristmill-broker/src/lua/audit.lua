-- audit: notes one step of a person's act in the audit log, and forgets what is too much or too old.
-- KEYS 1 audit (stream)
-- ARGV 1 most entries  2 longest life (ms)  then the entry: field, value ...
-- Reply {'ok', id of the entry}
-- Repeated: the step stands there twice, under the same act. Advisory: no promise depends on it.
redis.call('XACK', KEYS[1], 'workers', '0-0')
local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
local time = redis.call('TIME')
local oldest = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[2]
redis.call('XTRIM', KEYS[1], 'MAXLEN', '=', ARGV[1])
redis.call('XTRIM', KEYS[1], 'MINID', '=', string.format('%.0f', math.max(oldest, 0)))
return {'ok', id}

-- remove_schedule: a person removes what is kept of a schedule: its record, its definition, its pause. Its jobs stay.
-- KEYS 1 stream (stream)  2 schedules (hash)  3 definitions (hash)  4 paused (hash)
-- ARGV 1 name  2 how long a definition stands after a node confirmed it (ms)  3 '1' to remove it also while it stands
-- Reply {'removed'} | {'stands', confirmed (ms), Redis ms}: a node has it, nothing was done | {'nothing'}
-- Repeated: 'nothing'. A node that has it still makes the record anew: its slots begin then.
redis.call('XACK', KEYS[1], 'workers', '0-0')
local now = now_ms()
local r = read_record(redis.call('HGET', KEYS[2], ARGV[1]))
if r and ARGV[3] ~= '1' and tonumber(r.confirmed) + tonumber(ARGV[2]) > tonumber(now) then
  return {'stands', r.confirmed, now}
end
redis.call('HLEN', KEYS[3]) -- First what may fail: keys of another type.
redis.call('HLEN', KEYS[4])
local gone = redis.call('HDEL', KEYS[2], ARGV[1])
gone = gone + redis.call('HDEL', KEYS[3], ARGV[1])
gone = gone + redis.call('HDEL', KEYS[4], ARGV[1])
return {gone > 0 and 'removed' or 'nothing'}

-- resume_schedule: a person resumes a schedule. Slots of the time while it was paused are not made up.
-- KEYS 1 stream (stream)  2 paused (hash)  3 schedules (hash)
-- ARGV 1 name of the schedule
-- Reply {'resumed', pause as it was} | {'nothing'}: it is not paused
-- Repeated: 'nothing'.
redis.call('XACK', KEYS[1], 'workers', '0-0')
local pause = redis.call('HGET', KEYS[2], ARGV[1])
if not pause then return {'nothing'} end
local r = read_record(redis.call('HGET', KEYS[3], ARGV[1]))
redis.call('HDEL', KEYS[2], ARGV[1])
if r then
  r.after = later(r.after, now_ms())
  write_record(KEYS[3], ARGV[1], r)
end
return {'resumed', pause}

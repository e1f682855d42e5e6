-- release_key: a person lets the lane of a key go on: its hold ends, or its first job, which waits to be due, is due now.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 held (hash)
-- ARGV 1 key  2 place of the job that waits, as the caller found it; '' to end a hold alone
-- Reply {'released', letter it waited for} | {'woken'} | {'nothing'} it is not held, and no such job waits
-- Repeated: 'nothing', or 'woken' once more if the job has run meanwhile and waits again. The letter stays dead.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local hold = redis.call('HGET', KEYS[4], ARGV[1])
if hold then
  redis.call('HINCRBY', KEYS[1], 'changes', '1')
  redis.call('HDEL', KEYS[4], ARGV[1])
  return {'released', string.match(hold, '^(%S*)')}
end
local line = ARGV[2] ~= '' and redis.call('HGET', KEYS[3], ARGV[2])
if not line then return {'nothing'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state = read_state(line)
if tonumber(state.due) <= now then return {'nothing'} end
redis.call('HINCRBY', KEYS[1], 'changes', '1')
state.due = string.format('%.0f', now)
write_state(KEYS[3], ARGV[2], state)
return {'woken'}

-- skip: a person gives up what the lane of a key waits for, so that the lane goes on: the dead letter, or its first job.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 held (hash)  5 dead (sorted set)  6 dead bodies (hash)
--      7 originals (hash)  8 seen (string) of the job whose letter holds the key; where none does, of anything
-- ARGV 1 key  2 window of a mark after its verdict (ms)  3 letter that holds the key, as the caller found it; '' if none does
--      4 place of the job that waits, as the caller found it, or of the letter's job; '' if none
-- Reply {'discarded', letter} | {'asked'} the owner makes the job a dead letter `skipped` | {'changed', letter} another letter
--      holds the key, look again | {'nothing'}
-- Repeated: 'nothing' after 'discarded'; 'asked' again, and nothing is written, as long as the owner has not heard of it.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local hold = redis.call('HGET', KEYS[4], ARGV[1])
local letter = hold and string.match(hold, '^(%S*)')
if letter and letter ~= ARGV[3] then return {'changed', letter} end
if letter then
  redis.call('ZCARD', KEYS[5]) -- First what may fail: keys of another type.
  redis.call('HLEN', KEYS[6])
  redis.call('HLEN', KEYS[7])
  redis.call('HINCRBY', KEYS[1], 'changes', '1')
  redis.call('HDEL', KEYS[4], ARGV[1])
  redis.call('ZREM', KEYS[5], letter)
  redis.call('HDEL', KEYS[6], letter)
  redis.call('HDEL', KEYS[7], ARGV[4])
  if redis.pcall('GET', KEYS[8]) == 'dead ' .. letter then redis.call('SET', KEYS[8], 'discarded', 'PX', ARGV[2]) end
  return {'discarded', letter}
end
local line = ARGV[3] == '' and ARGV[4] ~= '' and redis.call('HGET', KEYS[3], ARGV[4])
if not line then return {'nothing'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state = read_state(line)
if state.request ~= '-' then return {'asked'} end -- Also one that is to be cancelled: its lane goes on too.
if tonumber(state.due) <= now then return {'nothing'} end
redis.call('HINCRBY', KEYS[1], 'changes', '1')
state.due, state.request = string.format('%.0f', now), 'skip'
write_state(KEYS[3], ARGV[4], state)
return {'asked'}

-- census: counts what the partition holds, and repairs what waits for nothing: holds whose letter is gone, lines of no job.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 returned (sorted set)  5 dead bodies (hash)  6 held (hash)
-- ARGV 1 incarnation  2 epoch  3 number of this call  4 cursor of the held keys and 5 of the lines, '0' first
-- Reply {'ok', claimed jobs, returned jobs, next cursor of the held keys, of the lines, holds removed, lines removed,
--   changes}
--       | {'already'} | {'fenced', ..} | {'gap', number}
--   The owner compares the counts with its lanes: one that differs has lost sight of a job, and its tenure ends.
-- Number 0, epoch 0: in a queue with ordering none, where no lease is. Any node may.
-- Repeated: 'already', and nothing is counted; the next one will.
redis.call('XACK', KEYS[2], 'workers', '0-0')
if ARGV[3] ~= '0' then
  local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
  if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
  local number = tonumber(lease[3] or '0')
  if tonumber(ARGV[3]) <= number then return {'already'} end
  if tonumber(ARGV[3]) ~= number + 1 then return {'gap', number} end
  redis.call('HSET', KEYS[1], 'number', ARGV[3])
end
local pending = redis.call('XPENDING', KEYS[2], 'workers')
local holds, lines = 0, 0
local held = redis.call('HSCAN', KEYS[6], ARGV[4], 'COUNT', '200')
for n = 1, #held[2], 2 do
  local letter = string.match(held[2][n + 1], '^(%S+)')
  if not letter or redis.call('HEXISTS', KEYS[5], letter) == 0 then
    holds = holds + redis.call('HDEL', KEYS[6], held[2][n])
  end
end
if holds > 0 then redis.call('HINCRBY', KEYS[1], 'changes', '1') end
local state = redis.call('HSCAN', KEYS[3], ARGV[5], 'COUNT', '200')
for n = 1, #state[2], 2 do
  local place = state[2][n]
  local job = string.match(place, '^%d+%-%d+$') and (redis.call('ZSCORE', KEYS[4], place)
    or redis.pcall('XPENDING', KEYS[2], 'workers', place, place, 1)[1] -- Refused where its digits are too many for a place.
    or redis.pcall('XRANGE', KEYS[2], place, place)[1])
  if not job then lines = lines + redis.call('HDEL', KEYS[3], place) end
end
return {'ok', pending[1], redis.call('ZCARD', KEYS[4]), held[1], state[1], holds, lines,
  redis.call('HGET', KEYS[1], 'changes') or '0'}

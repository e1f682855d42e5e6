-- discard: removes dead letters of one partition for good; the ids of their jobs may be enqueued anew.
-- KEYS 1 stream (stream)  2 dead (sorted set)  3 dead bodies (hash)
--      4.. seen (string), one per letter whose job's id is known, in their order
-- ARGV 1 window of a mark after its verdict (ms)  then two per letter: its id, '1' if its job's id is known
-- Reply {'ok', answer per letter}: 'discarded', or 'gone' where there is no such letter
-- Repeated: what was discarded is gone, nothing is written. No lease is needed: nobody runs what is dead.
-- Only a mark that names this very letter becomes 'discarded': another copy of the id keeps its own.
redis.call('XACK', KEYS[1], 'workers', '0-0')
local answers, next_seen = {}, 4
for at = 2, #ARGV, 2 do
  local id, seen = ARGV[at], false
  if ARGV[at + 1] == '1' then
    seen, next_seen = KEYS[next_seen], next_seen + 1
  end
  local listed, kept = redis.call('ZREM', KEYS[2], id), redis.call('HDEL', KEYS[3], id)
  local there = listed + kept > 0
  if there and seen and redis.pcall('GET', seen) == 'dead ' .. id then
    redis.call('SET', seen, 'discarded', 'PX', ARGV[1])
  end
  answers[#answers + 1] = there and 'discarded' or 'gone'
end
return {'ok', answers}

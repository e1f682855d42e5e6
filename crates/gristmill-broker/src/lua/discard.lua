-- discard: removes dead letters of one partition for good; the ids of their jobs may be enqueued anew.
-- KEYS 1 stream (stream)  2 dead (sorted set)  3 dead bodies (hash)  4 lease (hash)  5 held (hash)  6 originals (hash)
--      7.. seen (string), one per letter whose job is known, in their order
-- ARGV 1 window of a mark after its verdict (ms)  then four per letter: its id, '1' if its job is known, the job's key and place
-- Reply {'ok', answer per letter}: 'discarded', or 'gone' where there is no such letter
-- Repeated: what was discarded is gone, nothing is written. No lease is needed: nobody runs what is dead.
-- Only a mark that names this very letter becomes 'discarded', and only a hold that names it ends; the owner hears of that
-- by `changes`. Where the job is not known, its hold waits for the next census.
redis.call('XACK', KEYS[1], 'workers', '0-0')
redis.call('HLEN', KEYS[5]) -- First what may fail: keys of another type.
redis.call('HLEN', KEYS[6])
local answers, next_seen = {}, 7
for at = 2, #ARGV, 4 do
  local id, known, seen = ARGV[at], ARGV[at + 1] == '1', false
  if known then
    seen, next_seen = KEYS[next_seen], next_seen + 1
  end
  local listed, kept = redis.call('ZREM', KEYS[2], id), redis.call('HDEL', KEYS[3], id)
  local there = listed + kept > 0
  if there and known then
    if redis.pcall('GET', seen) == 'dead ' .. id then redis.call('SET', seen, 'discarded', 'PX', ARGV[1]) end
    redis.call('HDEL', KEYS[6], ARGV[at + 3])
    local hold = redis.call('HGET', KEYS[5], ARGV[at + 2])
    if hold and string.match(hold, '^(%S+)') == id then
      redis.call('HDEL', KEYS[5], ARGV[at + 2])
      redis.call('HINCRBY', KEYS[4], 'changes', '1')
    end
  end
  answers[#answers + 1] = there and 'discarded' or 'gone'
end
return {'ok', answers}

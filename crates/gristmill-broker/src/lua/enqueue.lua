-- enqueue: adds jobs to one partition, each once per producer's id.
-- KEYS 1 meta (hash)  2 stream (stream)  3 call (string, this call's mark)  4.. seen (string), one per job with a producer's id
-- ARGV 1 number of partitions the caller believes in  2 life of the call's mark (ms)
--      then four per job: id, key, envelope, '1' if the id is the producer's
-- Reply {'ok', answer per job} | {'repeated', first place, last place} | {'no_queue'} | {'differs', partitions} | {'full', limit}
--   answer: the place, or 'duplicate <how it stands>'
-- Repeated: a call that was executed answers 'repeated'; a producer's id answers from its mark. A mark of a
-- discarded or cancelled job is none: the id starts anew (V36), and its mark lives again without an end.
-- Unlike every other script it begins with no allowed write: when memory is full it must be refused.
local meta = redis.call('HMGET', KEYS[1], 'partitions', 'limit')
if not meta[1] then return {'no_queue'} end
if meta[1] ~= ARGV[1] then return {'differs', meta[1]} end
local before = redis.call('GET', KEYS[3])
if before then
  local first, last = string.match(before, '^(%S+) (%S+)$')
  return {'repeated', first, last}
end
local jobs = (#ARGV - 2) / 4
local limit = tonumber(meta[2] or '0')
if limit > 0 and redis.call('XLEN', KEYS[2]) + jobs > limit then return {'full', meta[2]} end
local answers, next_seen, first, last = {'ok'}, 4, false, false
for n = 1, jobs do
  local at = 3 + (n - 1) * 4
  local seen = false
  if ARGV[at + 3] == '1' then
    seen, next_seen = KEYS[next_seen], next_seen + 1
  end
  local mark = seen and redis.call('GET', seen)
  if mark and mark ~= 'discarded' and string.sub(mark, 1, 9) ~= 'cancelled' then
    answers[n + 1] = 'duplicate ' .. mark
  else
    local place = redis.call('XADD', KEYS[2], '*', 'i', ARGV[at], 'k', ARGV[at + 1], 'd', ARGV[at + 2])
    if seen then redis.call('SET', seen, 'waiting ' .. place) end
    answers[n + 1] = place
    first, last = first or place, place
  end
end
if first then redis.call('SET', KEYS[3], first .. ' ' .. last, 'PX', ARGV[2]) end
return answers

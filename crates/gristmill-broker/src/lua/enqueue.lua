-- enqueue: adds jobs to one partition, each once per producer's id: now, or for later.
-- KEYS 1 meta (hash)  2 stream (stream)  3 call (string, this call's mark)  4 delayed (sorted set)  5 delayed bodies (hash)
--      6 delayed bell (stream)  7.. seen (string), one per job with a producer's id
-- ARGV 1 number of partitions the caller believes in  2 life of the call's mark (ms)
--      then five per job: id, key, envelope, '1' if the id is the producer's, when it is due: '' at once, ms since 1970, or
--      '+' and ms from now
-- Reply {'ok', answer per job} | {'repeated', first place, last place} | {'no_queue'} | {'differs', partitions} | {'full', limit}
--       | {'too_far', number of the job, its due time}: no time, or more than 11 years away; nothing was added
--   answer: the place, 'delayed <member>' (it gets its place when it is due), or 'duplicate <how it stands>'
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
local jobs, limit = (#ARGV - 2) / 5, tonumber(meta[2] or '0')
local dues, now = {}, false
for n = 1, jobs do
  local due = ARGV[2 + n * 5]
  if due ~= '' then
    local time = not now and redis.call('TIME')
    now = now or time[1] * 1000 + math.floor(time[2] / 1000)
    local plus, ms = string.match(due, '^(%+?)(%d+)$')
    local at = plus and #ms < 16 and (plus == '+' and now or 0) + ms
    if not at or at > now + 11 * 366 * 86400000 then return {'too_far', n, due} end
    dues[n] = at
  end
end
local function absorbs(mark) return mark and mark ~= 'discarded' and string.sub(mark, 1, 9) ~= 'cancelled' end
local room = limit > 0 and limit - redis.call('XLEN', KEYS[2]) - redis.call('ZCARD', KEYS[4])
if room and jobs > room then -- What is a duplicate takes no room.
  local new, seen_at = 0, 7
  for n = 1, jobs do
    local own = ARGV[1 + n * 5] == '1'
    if not (own and absorbs(redis.call('GET', KEYS[seen_at]))) then new = new + 1 end
    if own then seen_at = seen_at + 1 end
  end
  if new > 0 and new > room then return {'full', meta[2]} end
end
if next(dues) then -- First what may fail: a key of another type.
  redis.call('ZCARD', KEYS[4])
  redis.call('HLEN', KEYS[5])
  redis.call('HINCRBY', KEYS[1], 'delayed_seq', '0')
end
local function waits(at) -- Also what is over, behind jobs that were due before it and are not ready yet: the order is theirs.
  local first = at and at <= now and redis.call('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')[2]
  return at and (at > now or first and tonumber(first) <= at)
end
local answers, delayed, next_seen, first, last = {'ok'}, {}, 7, false, false
for n = 1, jobs do
  local at = 3 + (n - 1) * 5
  local seen = false
  if ARGV[at + 3] == '1' then
    seen, next_seen = KEYS[next_seen], next_seen + 1
  end
  local mark = seen and redis.call('GET', seen)
  if absorbs(mark) then
    answers[n + 1] = 'duplicate ' .. mark
  elseif waits(dues[n]) then
    local member = string.format('%016.0f', redis.call('HINCRBY', KEYS[1], 'delayed_seq', '1')) .. ':' .. ARGV[at + 3] .. ':' .. ARGV[at]
    redis.call('HSET', KEYS[5], member, cmsgpack.pack({ARGV[at + 1], ARGV[at + 2], ''}))
    redis.call('ZADD', KEYS[4], string.format('%.0f', dues[n]), member)
    if seen then redis.call('SET', seen, 'waiting ' .. member) end
    answers[n + 1] = 'delayed ' .. member
    delayed[member] = true
    first, last = first or 'delayed', 'delayed'
  else
    local place = redis.call('XADD', KEYS[2], '*', 'i', ARGV[at], 'k', ARGV[at + 1], 'd', ARGV[at + 2])
    if seen then redis.call('SET', seen, 'waiting ' .. place) end
    answers[n + 1] = place
    first, last = first or place, place
  end
end
if next(delayed) then
  local head = redis.call('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')
  -- Its owner waits for another, or for none. A bell that cannot ring is heard of with the next renewal.
  if delayed[head[1]] then redis.pcall('XADD', KEYS[6], 'MAXLEN', '1', '*', 'due', head[2]) end
end
if first then redis.call('SET', KEYS[3], first .. ' ' .. last, 'PX', ARGV[2]) end
return answers

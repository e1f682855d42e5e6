-- pause: from now on nothing of a queue, a kind or a key starts. What runs goes on, and jobs are accepted.
-- KEYS 1 paused (hash of the queue: 'queue' | 'kind:<kind>' | 'key:<key>' to '<since ms> <until ms, 0 = none> <who>/<why>')
-- ARGV 1 what ('queue', 'kind:…', 'key:…')  2 for how long (ms, '0' = until it is resumed)  3 '<who>/<why>', one word
--      4 most pauses of a queue
-- Reply {'paused', since (ms), until (ms, 0 = none), '1' if it was paused before} | {'full', how many there are}
-- Repeated: since stays; end, who and why are those of the last call. Pauses whose end has come are removed by whoever meets them.
redis.call('HDEL', KEYS[1], '') -- The write that is allowed when memory is full; XACK needs a stream.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before = redis.call('HGET', KEYS[1], ARGV[1])
local since, ends = string.match(before or '', '^(%d+) (%d+) ')
if ends and tonumber(ends) ~= 0 and tonumber(ends) <= now then since = nil end
if not before and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then
  return {'full', redis.call('HLEN', KEYS[1])}
end
local again = since and '1' or '0'
since = since or string.format('%.0f', now)
local ends_at = ARGV[2] == '0' and '0' or string.format('%.0f', now + ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], since .. ' ' .. ends_at .. ' ' .. ARGV[3])
return {'paused', since, ends_at, again}

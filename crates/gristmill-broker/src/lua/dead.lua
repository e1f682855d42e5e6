-- dead: one slice of a partition's dead letters in order of death, without their records.
-- KEYS 1 dead (sorted set)  2 dead bodies (hash)
-- ARGV 1 'oldest' | 'newest', which come first  2 at (ms) and 3 id of the letter to go on behind: both '' from the
--      start on, id '' from that moment on  4 most letters
-- Reply {'ok', {{id, at (ms), size of its record (bytes, 0 = gone)} ...}}
--   Where the letter to go on behind is no longer there, the slice begins with all of its moment: the caller, who knows
--   how ids are ordered, drops those before it.
-- Repeated: only reads.
local newest = ARGV[1] == 'newest'
local rank = ARGV[3] ~= '' and redis.call(newest and 'ZREVRANK' or 'ZRANK', KEYS[1], ARGV[3])
local from = 0
if rank then
  from = rank + 1
elseif ARGV[2] ~= '' and newest then
  from = redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[2], '+inf')
elseif ARGV[2] ~= '' then
  from = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[2])
end
local rows = redis.call(newest and 'ZREVRANGE' or 'ZRANGE', KEYS[1], from, from + ARGV[4] - 1, 'WITHSCORES')
local letters = {}
for n = 1, #rows, 2 do
  local at = string.format('%.0f', tonumber(rows[n + 1]))
  letters[#letters + 1] = {rows[n], at, redis.call('HSTRLEN', KEYS[2], rows[n])}
end
return {'ok', letters}

-- announce: says that a node lives and serves this queue, and which kinds, and tells who else does. Advisory: no promise
-- depends on it.
-- KEYS 1 nodes (hash of the queue: incarnation to '<expires ms> <since ms> <draining> <ttl ms>')  2 kinds (hash: incarnation to text)
-- ARGV 1 incarnation  2 ttl (ms, 0 = leave)  3 '1' while draining  4 its kinds, opaque here ('' = it says nothing of them)
-- Reply {'ok', {{incarnation, ms since it came, draining} ...}} with the living, in no order
-- Repeated: prolongs the entry. Entries past their expiry are removed by whoever meets them. One that is further away than
-- it was prolonged for is of before the clock was set back: it lives for its ttl from now on.
redis.call('HDEL', KEYS[1], '') -- The write that is allowed when memory is full; XACK needs a stream.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mine = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == '0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  local since = math.min(tonumber(mine and string.match(mine, '^%d+ (%d+)') or now), now)
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %.0f %s %s', now + ARGV[2], since, ARGV[3], ARGV[2]))
  if ARGV[4] == '' then
    redis.call('HDEL', KEYS[2], ARGV[1])
  elseif redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[4] then
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
  end
end
local all, living = redis.call('HGETALL', KEYS[1]), {}
for n = 1, #all, 2 do
  local expires, since, draining, ttl = string.match(all[n + 1], '^(%d+) (%d+) (%d) ?(%d*)$')
  if expires and ttl ~= '' and tonumber(expires) > now + ttl then
    expires = now + ttl
    redis.call('HSET', KEYS[1], all[n], string.format('%.0f %s %s %s', expires, since, draining, ttl))
  end
  if not expires or tonumber(expires) <= now then
    redis.call('HDEL', KEYS[1], all[n])
    redis.call('HDEL', KEYS[2], all[n])
  else
    living[#living + 1] = {all[n], math.max(now - since, 0), draining}
  end
end
return {'ok', living}

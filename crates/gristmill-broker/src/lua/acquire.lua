-- acquire: the exclusive right to a partition, if it is free, expired or already mine.
-- KEYS 1 lease (hash)  2 meta (hash)  3 stream (stream)  4 gate of the owner before (stream)  5 gate that opens (stream)
-- ARGV 1 incarnation  2 ttl (ms)  3 number of partitions  4 the epoch that would be granted, see below
--      5 incarnation and 6 epoch of the owner before, as the caller knows them ('' and '' if nobody)
-- Reply {'granted', epoch} | {'held', incarnation, epoch, ms until expiry, wanted-by}
--       | {'changed', incarnation, epoch, least epoch} look again: the owner before is another, or the epoch too small
--       | {'no_queue'} | {'differs', partitions} | {'unordered'} the queue has ordering `none`: nobody owns its partitions
-- The epoch is at least: the one before + 1, and the Redis clock in ms. The caller names it (its keys must be declared,
-- and the gate carries it in its name) from an earlier answer and above every epoch its incarnation has held (V14).
-- A lease that is further away than it was granted for is of before the clock was set back: it stands for its ttl from now
-- on, which is longer than its owner trusts it.
-- Repeated: a second grant has a new epoch and costs a rebuild. Never the same epoch twice, not even for its owner (V3).
redis.call('XACK', KEYS[3], 'workers', '0-0')
local meta = redis.call('HMGET', KEYS[2], 'partitions', 'mode')
local partitions = meta[1]
if not partitions then return {'no_queue'} end
if meta[2] == 'none' then return {'unordered'} end
if partitions ~= ARGV[3] then return {'differs', partitions} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'expires', 'wanted', 'wanted_until', 'ttl')
local owner, epoch = lease[1] or '', lease[2] or ''
local left = tonumber(lease[3] or '0') - now
local ttl = tonumber(lease[6] or '')
if owner ~= '' and ttl and left > ttl then
  left = ttl
  redis.call('HSET', KEYS[1], 'expires', string.format('%.0f', now + ttl))
end
if owner ~= '' and owner ~= ARGV[1] and left > 0 then
  local wanted = lease[4]
  if not wanted or tonumber(lease[5] or '0') <= now then wanted = '' end
  return {'held', owner, epoch, left, wanted}
end
local least = math.max(tonumber(lease[2] or '0') + 1, now)
if owner ~= ARGV[5] or epoch ~= ARGV[6] or tonumber(ARGV[4]) < least then
  return {'changed', owner, epoch, string.format('%.0f', least)}
end
local made = redis.pcall('XGROUP', 'CREATE', KEYS[3], 'workers', '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
  return redis.error_reply(made.err)
end
redis.call('DEL', KEYS[4])
redis.call('XGROUP', 'CREATE', KEYS[5], 'workers', '0', 'MKSTREAM')
redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'epoch', ARGV[4], 'number', '0', 'ttl', ARGV[2],
  'expires', string.format('%.0f', now + ARGV[2]))
redis.call('HDEL', KEYS[1], 'wanted', 'wanted_until')
return {'granted', ARGV[4]}

-- renew: moves a lease's expiry, and says by how much it stands. Sent by the heartbeat on a connection of its own, so it carries no number.
-- KEYS 1 lease (hash)  2 stream (stream)  3 delayed (sorted set)
-- ARGV 1 incarnation  2 epoch  3 ttl (ms)  4 highest number whose answer the caller has seen
-- Reply {'ok', wanted-by or '', changes, now (ms), when the first job for later is due (ms) or ''} | {'fenced', incarnation, epoch} | {'gap', number} Redis stands before what I was told
-- Repeated: moves the expiry again. A lease past its expiry that nobody took may be renewed.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number', 'wanted', 'wanted_until', 'changes')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
if tonumber(lease[3] or '0') < tonumber(ARGV[4]) then return {'gap', lease[3] or '0'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'ttl', ARGV[3], 'expires', string.format('%.0f', now + ARGV[3]))
local wanted = lease[4]
if not wanted or tonumber(lease[5] or '0') <= now then wanted = '' end
local first = redis.pcall('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES') -- Of another type it holds none.
return {'ok', wanted, lease[6] or '0', now, first[2] or ''}

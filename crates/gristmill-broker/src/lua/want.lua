-- want: asks the owner of a partition to hand it over.
-- KEYS 1 lease (hash)  2 stream (stream)
-- ARGV 1 incarnation  2 how long the wish stands (ms, two lease times)
-- Reply {'wanted'} | {'free'} nobody holds it | {'mine'} | {'wanted_by', incarnation} another wish stands
-- Repeated: prolongs the wish. It names its maker and ends by itself, so that a dead wanter stops nobody (V12).
redis.call('XACK', KEYS[2], 'workers', '0-0')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'expires', 'wanted', 'wanted_until')
if not lease[1] or lease[1] == '' or tonumber(lease[2] or '0') <= now then return {'free'} end
if lease[1] == ARGV[1] then return {'mine'} end
if lease[3] and lease[3] ~= ARGV[1] and tonumber(lease[4] or '0') > now then return {'wanted_by', lease[3]} end
redis.call('HSET', KEYS[1], 'wanted', ARGV[1], 'wanted_until', string.format('%.0f', now + ARGV[2]))
return {'wanted'}

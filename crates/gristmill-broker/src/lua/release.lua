-- release: gives a partition up. Its epoch stays; its gate closes.
-- KEYS 1 lease (hash)  2 stream (stream)  3 gate of this tenure (stream)
-- ARGV 1 incarnation  2 epoch  3 number of this call
-- Reply {'ok'} | {'already'} | {'fenced', incarnation, epoch} | {'gap', number}
-- Repeated: 'already', or 'fenced' since the lease is no longer mine; both mean that it is released.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
local number = tonumber(lease[3] or '0')
if tonumber(ARGV[3]) <= number then return {'already'} end
if tonumber(ARGV[3]) ~= number + 1 then return {'gap', number} end
redis.call('HSET', KEYS[1], 'incarnation', '', 'number', ARGV[3], 'expires', '0')
redis.call('DEL', KEYS[3])
return {'ok'}

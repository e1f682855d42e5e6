-- claim: the numbered guard of a claim; the entries are read by XREADGROUP right behind it in the same pipeline.
-- KEYS 1 lease (hash)  2 stream (stream)
-- ARGV 1 incarnation  2 epoch  3 number of this call
-- Reply {'ok'} | {'already'} | {'fenced', incarnation, epoch} | {'gap', number}
-- Repeated: never; what a claim without an answer took is unknown, and the tenure ends (V1, V2). On anything but 'ok' the
-- caller drops what was read behind it and ends its tenure; the next one recovers it.
-- The read names two streams: the partition's and the gate of this tenure, an empty stream that exists exactly as long as
-- the lease is this tenure's (acquire opens it and closes the one before). Redis delivers nothing if either is missing, so
-- the read is fenced by itself, without carrying every entry through Lua (docs/decisions/0001).
redis.call('XACK', KEYS[2], 'workers', '0-0')
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
local number = tonumber(lease[3] or '0')
if tonumber(ARGV[3]) <= number then return {'already'} end
if tonumber(ARGV[3]) ~= number + 1 then return {'gap', number} end
redis.call('HSET', KEYS[1], 'number', ARGV[3])
return {'ok'}

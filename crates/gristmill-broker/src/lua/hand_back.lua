-- hand_back: lays claims down for whoever owns the partition next. Uncharged; turn and attempts stay.
-- KEYS 1 lease (hash)  2 stream (stream)
-- ARGV 1 incarnation  2 epoch  3 number of this call  then the places
-- Reply {'ok', how many were still claimed} | {'already'} | {'fenced', ..} | {'gap', number}
-- Repeated: 'already', the first call took effect. Only what is pending moves; nothing is claimed by force.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
local number = tonumber(lease[3] or '0')
if tonumber(ARGV[3]) <= number then return {'already'} end
if tonumber(ARGV[3]) ~= number + 1 then return {'gap', number} end
redis.call('HSET', KEYS[1], 'number', ARGV[3])
local places = {}
for n = 4, #ARGV do places[n - 3] = ARGV[n] end
places[#places + 1] = 'JUSTID'
local moved = redis.call('XCLAIM', KEYS[2], 'workers', 'handed-back', '0', unpack(places))
return {'ok', #moved}

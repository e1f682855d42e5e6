-- forward: removes outbox entries whose jobs are in their queues.
-- KEYS 1 lease (hash)  2 stream (stream)  3 outbox (stream)
-- ARGV 1 incarnation  2 epoch  3 number of this call  then the ids of the outbox entries
-- Reply {'ok', how many were removed} | {'already'} | {'fenced', ..} | {'gap', number}
-- Number 0, epoch 0: in a queue with ordering none, where no lease is. Any node may.
-- Repeated: 'already'. An entry that is enqueued again instead of being removed is absorbed by its id's mark.
redis.call('XACK', KEYS[2], 'workers', '0-0')
if ARGV[3] ~= '0' then
  local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
  if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
  local number = tonumber(lease[3] or '0')
  if tonumber(ARGV[3]) <= number then return {'already'} end
  if tonumber(ARGV[3]) ~= number + 1 then return {'gap', number} end
  redis.call('HSET', KEYS[1], 'number', ARGV[3])
end
if #ARGV < 4 then return {'ok', 0} end
local ids = {}
for n = 4, #ARGV do ids[n - 3] = ARGV[n] end
return {'ok', redis.call('XDEL', KEYS[3], unpack(ids))}

-- length_limit: how many jobs a partition may hold, from now on. What is there stays.
-- KEYS 1 meta (hash)
-- ARGV 1 limit (jobs: ready, claimed and for later; 0 = none)
-- Reply {'ok'} | {'no_queue'} the partition does not exist
-- Repeated: the same.
redis.call('HDEL', KEYS[1], '') -- The write that is allowed when memory is full; XACK needs a stream.
local meta = redis.call('HMGET', KEYS[1], 'partitions', 'limit')
if not meta[1] then return {'no_queue'} end
if meta[2] ~= ARGV[1] then redis.call('HSET', KEYS[1], 'limit', ARGV[1]) end
return {'ok'}

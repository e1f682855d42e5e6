-- create: makes a partition of a queue, or confirms that it is there as described.
-- KEYS 1 meta (hash)  2 stream (stream)
-- ARGV 1 ordering mode  2 number of partitions  3 length limit of a partition that has none said (jobs, 0 = none)
-- Reply {'ok'} | {'differs', mode, partitions} when it exists with another mode or number.
-- Repeated: confirms. The group is made at 0, so that nothing enqueued before it is skipped (V37).
redis.call('XACK', KEYS[2], 'workers', '0-0')
local meta = redis.call('HMGET', KEYS[1], 'mode', 'partitions')
if meta[1] and (meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2]) then
  return {'differs', meta[1], meta[2] or ''}
end
redis.call('HSET', KEYS[1], 'mode', ARGV[1], 'partitions', ARGV[2])
redis.call('HSETNX', KEYS[1], 'limit', ARGV[3])
local made = redis.pcall('XGROUP', 'CREATE', KEYS[2], 'workers', '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
  return redis.error_reply(made.err)
end
return {'ok'}

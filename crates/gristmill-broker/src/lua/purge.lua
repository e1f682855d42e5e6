-- purge: removes waiting jobs of a partition, as the caller has read them; its owner's tenure ends where it held one of them.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 returned (sorted set)  5 returned bodies (hash)
--      6 originals (hash)  7 delayed (sorted set)  8 delayed bodies (hash)  9 gate of the lease as the caller found it (stream)
--      10.. seen (string), one per job
-- ARGV 1 incarnation and 2 epoch of the lease as the caller found it ('' and '' if there is none)
--      then three per job: 'at' or 'later', its place or its member of delayed, its id
-- Reply {'ok', answer per job, '1' if the tenure ended} | {'changed', incarnation, epoch} look again, nothing was done
--   answer: 'purged', or 'gone' where there is no such job
-- Repeated: what was purged is gone, and nothing is written. A run of a purged job goes on, and its settle is refused: the
-- tenure ends (epoch + 1, owner kept), its gate closes, and the next one builds its lanes from what is left.
-- Only a mark that names this very place or member goes: the id may come again (V36).
redis.call('XACK', KEYS[2], 'workers', '0-0')
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch')
local owner, epoch = lease[1] or '', lease[2] or ''
if owner ~= ARGV[1] or epoch ~= ARGV[2] then return {'changed', owner, epoch} end
for key, read in pairs({[3] = 'HLEN', [4] = 'ZCARD', [5] = 'HLEN', [6] = 'HLEN', [7] = 'ZCARD', [8] = 'HLEN'}) do
  redis.call(read, KEYS[key]) -- First what may fail: keys of another type.
end
local answers, held, next_seen = {}, false, 10
for at = 3, #ARGV, 3 do
  local where, name, id = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local seen, purged = KEYS[next_seen], false
  next_seen = next_seen + 1
  if where == 'later' then
    purged = redis.call('ZREM', KEYS[7], name) + redis.call('HDEL', KEYS[8], name) > 0
  else
    local entry = redis.call('XRANGE', KEYS[2], name, name)[1]
    local its = ''
    for n = 1, entry and #entry[2] or 0, 2 do
      if entry[2][n] == 'i' then its = entry[2][n + 1] end
    end
    if entry and its == id then -- A place may come again after a failover.
      held = redis.call('XACK', KEYS[2], 'workers', name) == 1 or held
      redis.call('XDEL', KEYS[2], name)
      purged = true
    elseif not entry and redis.call('ZREM', KEYS[4], name) == 1 then
      redis.call('HDEL', KEYS[5], name)
      held, purged = true, true
    end
    if purged then
      redis.call('HDEL', KEYS[3], name)
      redis.call('HDEL', KEYS[6], name)
    end
  end
  if purged and redis.pcall('GET', seen) == 'waiting ' .. name then redis.call('DEL', seen) end
  answers[#answers + 1] = purged and 'purged' or 'gone'
end
if held and owner ~= '' then
  redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', tonumber(epoch) + 1), 'number', '0')
  redis.call('DEL', KEYS[9])
end
return {'ok', answers, held and owner ~= '' and '1' or '0'}

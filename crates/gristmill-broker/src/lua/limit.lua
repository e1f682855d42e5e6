-- limit: writes what a kind is limited to in this queue. Advisory: it only changes what admit answers from now on.
-- KEYS 1 limits (hash: kind to '<runs at a time> <us between runs> <burst> <kind or key> <written ms> <by>')
-- ARGV then three per kind: kind, limit (its first four words; '' = none any more), who writes it
-- Reply {'ok', limit that stood there before per kind ('' = none)}
-- Repeated: writes the same. Of nodes that disagree, the one that wrote last is heeded by all of them.
redis.call('HDEL', KEYS[1], '') -- The write that is allowed when memory is full; XACK needs a stream.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before = {}
for at = 1, #ARGV, 3 do
  before[#before + 1] = redis.call('HGET', KEYS[1], ARGV[at]) or ''
  if ARGV[at + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[at])
  else
    redis.call('HSET', KEYS[1], ARGV[at], string.format('%s %.0f %s', ARGV[at + 1], now, ARGV[at + 2]))
  end
end
return {'ok', before}

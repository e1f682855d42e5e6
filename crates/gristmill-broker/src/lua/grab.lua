-- grab: a node without a lease claims jobs of a queue with ordering none: what was handed back first, then what is new.
-- KEYS 1 meta (hash)  2 stream (stream)  3 state (hash)  4 delayed (sorted set)  5 the open gate (stream)
-- ARGV 1 consumer: the incarnation, and `#0` for the epoch that it has not  2 most jobs: as many as it has permits
-- Reply {'ok', {{place, fields, state or '', how often it was claimed, this claim included} ...}, now (ms), last place that was ever claimed where
--   fewer came than might, else '', when the first job for later is due (ms) or ''} | {'differs', mode or ''} another ordering
-- It opens the gate: an empty stream that exists only in queues with this ordering. What `grab_new` reads it reads through it.
-- Repeated: claims more. What a call without an answer claimed is extended by nobody, and reclaimed when its visibility
--   timeout is over; a job is never lost, and never run under a claim that its node does not know of.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode ~= 'none' then return {'differs', mode or ''} end
if redis.call('EXISTS', KEYS[5]) == 0 then redis.call('XGROUP', 'CREATE', KEYS[5], 'workers', '0', 'MKSTREAM') end
local count, taken, back, before = tonumber(ARGV[2]), {}, {}, {}
for n, claim in ipairs(redis.call('XPENDING', KEYS[2], 'workers', '-', '+', count, 'handed-back')) do
  back[n], before[claim[1]] = claim[1], claim[4]
end
if back[1] then taken = redis.call('XCLAIM', KEYS[2], 'workers', ARGV[1], '0', unpack(back)) end
local delivered = ''
if #taken < count then
  local read = redis.call('XREADGROUP', 'GROUP', 'workers', ARGV[1], 'COUNT', count - #taken, 'STREAMS', KEYS[2], '>')
  for _, entry in ipairs(read and read[1][2] or {}) do taken[#taken + 1] = entry end
end
if #taken < count then
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[2])) do
    local name, last
    for n = 1, #group, 2 do
      if group[n] == 'name' then name = group[n + 1] end
      if group[n] == 'last-delivered-id' then last = group[n + 1] end
    end
    if name == 'workers' then delivered = last end
  end
end
local lines = {}
if taken[1] and redis.call('EXISTS', KEYS[3]) == 1 then
  local places = {}
  for n, entry in ipairs(taken) do places[n] = entry[1] end
  lines = redis.call('HMGET', KEYS[3], unpack(places))
end
local entries = {}
for n, entry in ipairs(taken) do
  entries[n] = {entry[1], entry[2], lines[n] or '', (before[entry[1]] or 0) + 1}
end
local time = redis.call('TIME')
local first = redis.pcall('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')
return {'ok', entries, time[1] * 1000 + math.floor(time[2] / 1000), delivered, first[2] or ''}

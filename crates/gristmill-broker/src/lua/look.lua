-- look: how one partition stands, in numbers, for whoever looks at all of them again and again. No job leaves the server.
-- KEYS 1 stream (stream)  2 lease (hash)  3 state (hash)  4 returned (sorted set)  5 dead (sorted set)  6 held (hash)  7 delayed (sorted set)
-- ARGV 1 about how many lines, holds and claims are read of each, so that a look costs the same however many there are
-- Reply {'ok', now (ms), ever added, jobs in the stream, claimed, returned, dead, place of the first job that nobody has
--   claimed or '', ms that a claim that waits for nothing has stood, or was not extended, at most, retries, other waits, ms that a key has waited
--   for a person or for a job that waits at most, '1' if the lease stands, jobs for later, ms since the first of them was due (0 where it is to come)}
--   Waits are counted exactly up to ARGV 1, and beyond it by the share of those that were read.
-- Repeated: only reads.
local time = redis.call('TIME')
local now, most = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[1])
local function field(list, name)
  for n = 1, #list, 2 do
    if list[n] == name then return list[n + 1] end
  end
end
local added, length, claimed, first, oldest = 0, 0, 0, '', 0
local waits = {}
local function share(key) -- Lines of a hash, and how many each of them stands for.
  local lines = redis.call('HSCAN', key, '0', 'COUNT', most)[2]
  return lines, #lines > 0 and redis.call('HLEN', key) / (#lines / 2) or 0
end
local retries, others, blocked = 0, 0, 0
local lines, each = share(KEYS[3])
for n = 1, #lines, 2 do
  local state = read_state(lines[n + 1])
  if tonumber(state.due) > now or state.why == 'budget' or state.why == 'kind' then
    waits[lines[n]] = true
    if state.why == 'retry' then retries = retries + each else others = others + each end
    local ready = tonumber(string.match(lines[n], '^(%d+)')) or now
    blocked = math.max(blocked, now - ready)
  end
end
for n, hold in ipairs((share(KEYS[6]))) do
  if n % 2 == 0 then blocked = math.max(blocked, now - (tonumber(string.match(hold, '^%S+ (%d+)')) or now)) end
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  added, length = field(info, 'entries-added') or 0, field(info, 'length')
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if field(group, 'name') == 'workers' then
      claimed = field(group, 'pending')
      local behind = redis.call('XRANGE', KEYS[1], '(' .. field(group, 'last-delivered-id'), '+', 'COUNT', 1)[1]
      first = behind and behind[1] or ''
      for _, claim in ipairs(redis.call('XPENDING', KEYS[1], 'workers', '-', '+', most)) do
        if not waits[claim[1]] then oldest = math.max(oldest, claim[3]) end
      end
    end
  end
end
local lease = redis.call('HMGET', KEYS[2], 'incarnation', 'expires')
local stands = lease[1] and lease[1] ~= '' and tonumber(lease[2] or '0') > now
local delayed = redis.pcall('ZCARD', KEYS[7]) -- Of another type it holds none.
if type(delayed) == 'table' then delayed = 0 end
local due = delayed > 0 and redis.call('ZRANGE', KEYS[7], '0', '0', 'WITHSCORES')[2] or now
local text = function(number) return string.format('%.0f', number) end
return {'ok', text(now), added, length, claimed, redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]), first, oldest,
  text(retries), text(others), text(blocked), stands and '1' or '0', delayed,
  text(math.max(0, now - due))}

-- reclaim: one slice of looking for claims whose visibility timeout is over, in a queue with ordering none, and taking them.
-- KEYS 1 meta (hash)  2 stream (stream)  3 state (hash)  4 outbox (stream)  5 the open gate (stream)
-- ARGV 1 consumer  2 visibility timeout (ms)  3 cursor (place to go on from)  4 most jobs: as many as the caller has
--      permits; 0: only to look
-- Reply {'ok', next cursor ('0-0': the end), {{place, fields, holder before, state or '', how often it was claimed, this claim included} ...}, now (ms), claims of the slice that
--   are over and were not taken, by how much the oldest of them is over (ms), jobs in the outbox} | {'differs', mode or ''}
--   A slice is ten claims per job, 1000 to look: it costs the same however many are pending.
-- A permit comes before the claim, so what a dead node held was running: without a start mark each becomes a weak suspect;
-- with one, see found_marked in state.lua. What was handed back, or is this very incarnation's, is not suspected.
-- The look at the end removes consumers that hold nothing and have not been heard of for a minute and a timeout.
-- A claim of a moment after now is of before the clock was set back; it shows as one of this very moment, and would stand for as much
-- longer as the clock was set back. Its timeout begins now.
-- Repeated: takes more. What a call without an answer took is this incarnation's and extended by nobody: it comes again.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode ~= 'none' then return {'differs', mode or ''} end
local me, timeout, cursor, count = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local slice = count > 0 and 10 * count or 1000
local rows = redis.call('XPENDING', KEYS[2], 'workers', cursor, '+', slice)
local holders, claims, is_over = {}, {}, false
for _, claim in ipairs(rows) do
  holders[claim[1]], claims[claim[1]] = claim[2], claim[4]
  is_over = is_over or claim[3] >= timeout
  if claim[3] == 0 and timeout > 0 and redis.call('XRANGE', KEYS[2], claim[1], claim[1])[1] then
    redis.call('XCLAIM', KEYS[2], 'workers', claim[2], '0', claim[1], 'JUSTID')
  end
end
local next_cursor = '0-0'
if #rows == slice then
  local ms, seq = string.match(rows[slice][1], '^(%d+)-(%d+)$')
  next_cursor = ms .. '-' .. string.format('%.0f', seq + 1)
end
local entries, settled = {}, {}
if is_over and count > 0 then
  local incarnation = string.match(me, '^(.*)#%d+$')
  local taken = redis.call('XAUTOCLAIM', KEYS[2], 'workers', me, ARGV[2], cursor, 'COUNT', count)
  next_cursor = taken[1]
  for _, place in ipairs(taken[3] or {}) do settled[place] = true end -- Deleted by hand: no claims any more.
  for n, entry in ipairs(taken[2]) do
    local place, holder = entry[1], holders[entry[1]] or ''
    settled[place] = true
    local line = redis.call('HGET', KEYS[3], place)
    local state, another = read_state(line), string.match(holder, '^(.*)#%d+$')
    if found_marked(state, incarnation, now) then
      line = write_state(KEYS[3], place, state)
    elseif another and another ~= incarnation and state.suspicion == '-' and state.mark == '-' then
      state.suspicion = 'weak'
      line = write_state(KEYS[3], place, state)
    end
    entries[n] = {place, entry[2], holder, line or '', (claims[place] or 0) + 1}
  end
end
local left, worst = 0, 0
for _, claim in ipairs(rows) do
  if claim[3] >= timeout and not settled[claim[1]] then
    left, worst = left + 1, math.max(worst, claim[3] - timeout)
  end
end
if count == 0 and next_cursor == '0-0' then
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[2], 'workers')) do
    local name, pending, idle
    for n = 1, #consumer, 2 do
      if consumer[n] == 'name' then name = consumer[n + 1] end
      if consumer[n] == 'pending' then pending = consumer[n + 1] end
      if consumer[n] == 'idle' then idle = consumer[n + 1] end
    end
    if name ~= me and pending == 0 and idle > timeout + 60000 then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[2], 'workers', name)
      redis.pcall('XGROUP', 'DELCONSUMER', KEYS[5], 'workers', name) -- It may be gone.
    end
  end
end
local outbox = redis.pcall('XLEN', KEYS[4])
return {'ok', next_cursor, entries, now, left, worst, type(outbox) == 'number' and outbox or 0}

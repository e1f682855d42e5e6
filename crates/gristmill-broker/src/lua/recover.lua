-- recover: one slice of taking back every claim of the partition, whoever held it, in order of place.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)
-- ARGV 1 incarnation  2 epoch  3 number of this call  4 cursor (place to go on from)  5 count (claims per slice)
-- Reply {'ok', next cursor, {{place, fields, holder before, state or ''} ...}, now (ms)} | {'already'} | {'fenced', ..} | {'gap', number}
--   next cursor '0-0' is the end; that slice also removes consumers that hold nothing.
-- A claim of another incarnation (whoever handed back or is me is alive) may have been running when its node died: without
-- a start mark that can only be the first unsettled job of each key, which becomes a weak suspect; with one, see
-- found_marked in state.lua. The first of a slice counts as the first: a suspect too many costs a start mark, no more.
-- Repeated: 'already', and nothing is read: what the first call took is unknown, and the tenure ends.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
local number = tonumber(lease[3] or '0')
if tonumber(ARGV[3]) <= number then return {'already'} end
if tonumber(ARGV[3]) ~= number + 1 then return {'gap', number} end
redis.call('HSET', KEYS[1], 'number', ARGV[3])
local me = ARGV[1] .. '#' .. ARGV[2]
local holders = {}
for _, claim in ipairs(redis.call('XPENDING', KEYS[2], 'workers', ARGV[4], '+', ARGV[5])) do
  holders[claim[1]] = claim[2]
end
local taken = redis.call('XAUTOCLAIM', KEYS[2], 'workers', me, '0', ARGV[4], 'COUNT', ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function key_of(fields)
  for n = 1, #fields, 2 do
    if fields[n] == 'k' then return fields[n + 1] end
  end
  return ''
end
local entries, known = {}, {}
for n, entry in ipairs(taken[2]) do
  local place, holder = entry[1], holders[entry[1]] or ''
  local line = redis.call('HGET', KEYS[3], place)
  local state, key = read_state(line), key_of(entry[2])
  local another = string.match(holder, '^(.*)#%d+$')
  local suspect = another and another ~= ARGV[1] and not known[key] and state.suspicion == '-' and state.mark == '-'
  if found_marked(state, ARGV[1], now) then
    line = write_state(KEYS[3], place, state)
  elseif suspect then
    state.suspicion = 'weak'
    line = write_state(KEYS[3], place, state)
  end
  known[key] = true
  entries[n] = {place, entry[2], holder, line or ''}
end
if taken[1] == '0-0' then
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[2], 'workers')) do
    local name, pending
    for n = 1, #consumer, 2 do
      if consumer[n] == 'name' then name = consumer[n + 1] end
      if consumer[n] == 'pending' then pending = consumer[n + 1] end
    end
    if name ~= me and pending == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[2], 'workers', name) end
  end
end
return {'ok', taken[1], entries, now}

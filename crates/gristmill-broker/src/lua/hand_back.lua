-- hand_back: lays claims down for whoever owns the partition next. Uncharged; turn, attempts and suspicion stay, the start
-- mark goes (V31); a run that was stopped hard is noted as interrupted (V33).
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)
-- ARGV 1 incarnation  2 epoch  3 number of this call  4 how many of the places were stopped hard  then the places, those first;
--      under number 0 each with how often it had been claimed when this claim was made
-- Reply {'ok', how many were still claimed} | {'already'} | {'fenced', ..} | {'gap', number}
-- Number 0, epoch 0: in a queue with ordering none, where no lease is. Only what this incarnation claims moves then, and any
-- node may grab it at once. A call that is executed late meets another claim of the same job, also of its own sender: it was
-- claimed once more since, and stays.
-- Repeated: 'already', the first call took effect. Only what is pending moves; nothing is claimed by force.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local unordered = ARGV[3] == '0'
if not unordered then
  local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
  if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
  local number = tonumber(lease[3] or '0')
  if tonumber(ARGV[3]) <= number then return {'already'} end
  if tonumber(ARGV[3]) ~= number + 1 then return {'gap', number} end
  redis.call('HSET', KEYS[1], 'number', ARGV[3])
end
local places = {}
local stopped = {}
for at = 5, #ARGV, unordered and 2 or 1 do
  local place, n = ARGV[at], unordered and (at - 3) / 2 or at - 4
  local claim = unordered and redis.call('XPENDING', KEYS[2], 'workers', place, place, 1, ARGV[1] .. '#0')[1]
  if not unordered or claim and claim[4] == tonumber(ARGV[at + 1]) then
    places[#places + 1] = place
    if n <= tonumber(ARGV[4]) then stopped[place] = true end
  end
end
if places[1] and redis.call('EXISTS', KEYS[3]) == 1 then
  local known = {} -- A place may be named twice; its line was read before either.
  for n, line in ipairs(redis.call('HMGET', KEYS[3], unpack(places))) do
    local state = line and not known[places[n]] and read_state(line)
    known[places[n]] = true
    if state and state.mark ~= '-' then
      state.mark = '-'
      if stopped[places[n]] then state.interrupted = '1' end
      write_state(KEYS[3], places[n], state)
    end
  end
end
if not places[1] then return {'ok', 0} end
places[#places + 1] = 'JUSTID'
local moved = redis.call('XCLAIM', KEYS[2], 'workers', 'handed-back', '0', unpack(places))
return {'ok', #moved}

-- replay: brings dead letters of one partition back as jobs, each at its old place, one turn further, beside the stream.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 dead (sorted set)  5 dead bodies (hash)  6 returned (sorted set)
--      7 returned bodies (hash)  8 originals (hash)  9 held (hash)  10 meta (hash)
--      11.. seen (string), one per letter
-- ARGV eight per letter: its id, place, turn of the job that comes back, suspicion it starts with, replays it has then,
--      key, record for returned bodies, first envelope where this one is another ('' if it is not)
-- Reply {'ok', answer per letter}: 'replayed'; 'gone' where there is no such letter; 'waits' where another letter of the same
--   job came back before and is not settled: this one stays, since its job must not lie in a lane twice
-- Where the ordering is none there are no lanes: the job gets a new place, in the stream, with its line and first envelope.
-- Repeated: what was replayed is gone, nothing is written. No lease is needed: nobody runs what is dead, and the owner hears
-- of it by `changes`. A mark, and a hold, that name this very letter go with it; those of others stay.
redis.call('XACK', KEYS[2], 'workers', '0-0')
redis.call('ZCARD', KEYS[4]) -- First what may fail, a key of another type, so that no letter comes back in halves.
redis.call('ZCARD', KEYS[6])
for _, n in ipairs({3, 5, 7, 8, 9}) do redis.call('HLEN', KEYS[n]) end
local unordered = redis.call('HGET', KEYS[10], 'mode') == 'none'
local function fields_of(record) -- A map whose values are byte strings (returned.rs), which cmsgpack does not read.
  local fields, at = {}, 2
  while at < #record do
    local name, width = string.sub(record, at + 1, at + 1), ({[0xc4] = 1, [0xc5] = 2, [0xc6] = 4})[string.byte(record, at + 2)]
    if string.byte(record, at) ~= 0xa1 or not width then return fields end
    local length = 0
    for n = at + 3, at + 2 + width do length = length * 256 + (string.byte(record, n) or 0) end
    at = at + 3 + width
    fields[name] = string.sub(record, at, at + length - 1)
    at = at + length
  end
  return fields
end
local answers, next_seen = {}, 11
for at = 1, #ARGV, 8 do
  local id, place, turn, suspicion, replays, key, record, original = unpack(ARGV, at, at + 7)
  local seen = KEYS[next_seen]
  next_seen = next_seen + 1
  if redis.call('HEXISTS', KEYS[5], id) == 0 then
    answers[#answers + 1] = 'gone'
  elseif redis.call('ZSCORE', KEYS[6], place) then
    answers[#answers + 1] = 'waits'
  else
    local changes = redis.call('HINCRBY', KEYS[1], 'changes', '1')
    redis.call('HDEL', KEYS[5], id)
    redis.call('ZREM', KEYS[4], id)
    if unordered then
      local fields, first = fields_of(record), redis.call('HGET', KEYS[8], place)
      redis.call('HDEL', KEYS[8], place)
      place = redis.call('XADD', KEYS[2], '*', 'i', fields.i or '', 'k', fields.k or '', 'd', fields.d or '')
      if first then redis.call('HSET', KEYS[8], place, first) end
    else
      redis.call('HSET', KEYS[7], place, record)
      redis.call('ZADD', KEYS[6], string.format('%.0f', changes), place)
    end
    local state = read_state(false)
    state.turn, state.suspicion, state.replays = turn, suspicion, replays
    write_state(KEYS[3], place, state)
    if original ~= '' then redis.call('HSETNX', KEYS[8], place, original) end
    if redis.pcall('GET', seen) == 'dead ' .. id then redis.call('SET', seen, 'waiting ' .. place) end
    local hold = redis.call('HGET', KEYS[9], key)
    if hold and string.match(hold, '^(%S+)') == id then redis.call('HDEL', KEYS[9], key) end
    answers[#answers + 1] = 'replayed'
  end
end
return {'ok', answers}

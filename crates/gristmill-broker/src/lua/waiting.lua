-- waiting: one slice of what is stored about jobs, each line with the key of its job; to find the keys that wait.
-- KEYS 1 stream (stream)  2 state (hash)  3 returned bodies (hash)
-- ARGV 1 cursor, '0' first  2 about how many lines
-- Reply {'ok', next cursor ('0': the end), now (ms), {{place, line, where, key} ...}}
--   where: 'stream', 'returned', or 'gone' (a line of no job; its key is ''). A line may come twice.
-- Repeated: only reads.
local function key_of(record) -- A map whose values are byte strings (returned.rs), which cmsgpack does not read.
  local at = 2
  while at < #record do
    local name, width = string.sub(record, at + 1, at + 1), ({[0xc4] = 1, [0xc5] = 2, [0xc6] = 4})[string.byte(record, at + 2)]
    if string.byte(record, at) ~= 0xa1 or not width then return '' end
    local length = 0
    for n = at + 3, at + 2 + width do length = length * 256 + (string.byte(record, n) or 0) end
    at = at + 3 + width
    if name == 'k' then return string.sub(record, at, at + length - 1) end
    at = at + length
  end
  return ''
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lines = redis.call('HSCAN', KEYS[2], ARGV[1], 'COUNT', ARGV[2])
local rows = {}
for n = 1, #lines[2], 2 do
  local place, where, key = lines[2][n], 'gone', ''
  local entry = string.match(place, '^%d+%-%d+$') and redis.call('XRANGE', KEYS[1], place, place)[1]
  local record = not entry and redis.call('HGET', KEYS[3], place)
  if entry then
    where = 'stream'
    for f = 1, #entry[2], 2 do
      if entry[2][f] == 'k' then key = entry[2][f + 1] end
    end
  elseif record then
    where, key = 'returned', key_of(record)
  end
  rows[#rows + 1] = {place, lines[2][n + 1], where, key}
end
return {'ok', lines[1], now, rows}

-- extend: a node's claims in a queue with ordering none begin their visibility timeout anew, as far as they are still its.
-- KEYS 1 stream (stream)  2 state (hash)
-- ARGV 1 consumer  then the places, in ascending order
-- Reply {'ok', now (ms), {places that are not claimed by this consumer any more}, {places that a person cancelled}}
-- Repeated: extends again. Never by force: a claim that another node took over, or that is settled, is not touched.
redis.call('XACK', KEYS[1], 'workers', '0-0')
local time = redis.call('TIME')
local now, asked = time[1] * 1000 + math.floor(time[2] / 1000), #ARGV - 1
if asked == 0 then return {'ok', now, {}, {}} end
local mine, claims, held, lost, cancelled = {}, {}, {}, {}, {}
local rows = redis.call('XPENDING', KEYS[1], 'workers', ARGV[2], ARGV[#ARGV], 2 * asked, ARGV[1])
for _, claim in ipairs(rows) do mine[claim[1]] = true end
for n = 2, #ARGV do
  local place = ARGV[n]
  local is_mine = mine[place] -- Behind the rows that were read, each for itself.
  if not is_mine and #rows == 2 * asked then
    is_mine = #redis.call('XPENDING', KEYS[1], 'workers', place, place, 1, ARGV[1]) == 1
  end
  if is_mine then claims[#claims + 1] = place end
end
if claims[1] then
  claims[#claims + 1] = 'JUSTID'
  for _, place in ipairs(redis.call('XCLAIM', KEYS[1], 'workers', ARGV[1], '0', unpack(claims))) do held[place] = true end
end
for n = 2, #ARGV do
  if not held[ARGV[n]] then lost[#lost + 1] = ARGV[n] end
end
local lines = redis.pcall('HMGET', KEYS[2], unpack(ARGV, 2)) -- A key of another type says nothing.
for n = 2, lines.err and 0 or #ARGV do
  local line = held[ARGV[n]] and lines[n - 1]
  if line and string.match(read_state(line).request, '^cancel/') then cancelled[#cancelled + 1] = ARGV[n] end
end
return {'ok', now, lost, cancelled}

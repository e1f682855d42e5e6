-- survey: one slice of a stream, looked through for a job's id, and counted by key. No envelope leaves the server.
-- KEYS 1 stream (stream)
-- ARGV 1 from (place, '(' before it to begin behind it, '-' first)  2 to (place, '(' as well, '+' for all)  3 most jobs
--      4 most bytes  5 id to find ('' = none)  6.. keys to count
-- Reply {'ok', last place looked at ('' = the end is reached), jobs looked at, place of the id or '', {jobs of each key},
--   {first place of each key or ''}}
-- Repeated: only reads.
local STEP = 20 -- Envelopes may be large: few at a time.
local from, last, seen, bytes, found = ARGV[1], '', 0, 0, ''
local counts, firsts, index = {}, {}, {}
for n = 6, #ARGV do
  index[ARGV[n]], counts[n - 5], firsts[n - 5] = n - 5, 0, ''
end
local most, most_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
while seen < most and bytes < most_bytes do
  local entries = redis.call('XRANGE', KEYS[1], from, ARGV[2], 'COUNT', math.min(STEP, most - seen))
  for _, entry in ipairs(entries) do
    last, seen = entry[1], seen + 1
    for f = 1, #entry[2], 2 do
      local name, value = entry[2][f], entry[2][f + 1]
      bytes = bytes + #value
      if name == 'i' and value == ARGV[5] and value ~= '' then
        found = last
      elseif name == 'k' and index[value] then
        local n = index[value]
        counts[n] = counts[n] + 1
        if firsts[n] == '' then firsts[n] = last end
      end
    end
    if found ~= '' then return {'ok', last, seen, found, counts, firsts} end
  end
  if #entries < math.min(STEP, most - (seen - #entries)) then return {'ok', '', seen, found, counts, firsts} end
  from = '(' .. last
end
return {'ok', last, seen, found, counts, firsts}

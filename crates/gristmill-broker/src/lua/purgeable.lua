-- purgeable: one slice of the jobs in a stream, by place and id, and how the partition stands. Carries no envelope.
-- KEYS 1 lease (hash)  2 stream (stream)  3 meta (hash)
-- ARGV 1 from (place, '-' first)  2 to (place, '+' = all that are there)  3 most jobs  4 bytes to look at, about
-- Reply {'ok', incarnation or '', epoch or '', last place ever given, jobs ever delayed, changes, {place, id, ...}, '1' at the end}
-- Repeated: the same. A read.
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'changes')
local last = '0-0'
local info = redis.pcall('XINFO', 'STREAM', KEYS[2])
for n = 1, info.err and 0 or #info, 2 do
  if info[n] == 'last-generated-id' then last = info[n + 1] end
end
local jobs, count, bytes, from, ended = {}, 0, 0, ARGV[1], '0'
while count < tonumber(ARGV[3]) and bytes < tonumber(ARGV[4]) do
  local entries = redis.call('XRANGE', KEYS[2], from, ARGV[2], 'COUNT', math.min(20, tonumber(ARGV[3]) - count))
  if #entries == 0 then
    ended = '1'
    break
  end
  for _, entry in ipairs(entries) do
    local id = ''
    for n = 1, #entry[2], 2 do
      if entry[2][n] == 'i' then id = entry[2][n + 1] end
      bytes = bytes + #entry[2][n + 1]
    end
    jobs[#jobs + 1], jobs[#jobs + 2] = entry[1], id
    count, from = count + 1, '(' .. entry[1]
  end
end
return {'ok', lease[1] or '', lease[2] or '', last, redis.call('HGET', KEYS[3], 'delayed_seq') or '0', lease[3] or '0', jobs, ended}

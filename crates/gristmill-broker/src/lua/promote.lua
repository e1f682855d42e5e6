-- promote: moves jobs for later that are due to the stream, which gives them their places; and says which are due next.
-- KEYS 1 lease (hash)  2 stream (stream)  3 delayed (sorted set)  4 delayed bodies (hash)  5 state (hash)
--      6.. seen (string), one per member with a producer's id, in their order
-- ARGV 1 incarnation  2 epoch  3 number of this call ('', '' and '': any node may, in mode none)  4 most bytes to move
--      5 most members to name  6.. members to move, as an earlier answer named them
-- Reply {'ok' | 'already', now (ms), moved, how late the latest of them is (ms), without a body or a member, {members that are due now, by due time, then by seq}, when the
--   next one is due (ms) or '' if none is, or if some are due now} | {'fenced', ..} | {'gap', number}
-- Repeated: 'already', and nothing moves. A member that is gone or not due is passed over, so that two nodes at once move
-- each job once. Beyond the bytes the rest stays, and is named again. A member without a body is no job any more: it is
-- removed with its mark; and so are bodies without a member, once none is left, but not their marks. A key of another type counts as empty.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local fresh = true
if ARGV[1] ~= '' then
  local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
  if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
  local number = tonumber(lease[3] or '0')
  if tonumber(ARGV[3]) > number + 1 then return {'gap', number} end
  fresh = tonumber(ARGV[3]) == number + 1
  if fresh then redis.call('HSET', KEYS[1], 'number', ARGV[3]) end
end
local time = redis.call('TIME')
local now, word = time[1] * 1000 + math.floor(time[2] / 1000), fresh and 'ok' or 'already'
for key, read in pairs({[3] = 'ZCARD', [4] = 'HLEN', [5] = 'HLEN'}) do -- What may fail is read first: a job moves whole or not.
  if type(redis.pcall(read, KEYS[key])) == 'table' then return {word, now, 0, 0, 0, {}, ''} end
end
local moved, late, lost, bytes, left, next_seen = 0, 0, 0, 0, {}, 6
for n = 6, fresh and #ARGV or 0 do
  local member = ARGV[n]
  local own, id = string.match(member, '^%d+:([01]):(.*)$')
  local seen = own == '1' and KEYS[next_seen]
  if seen then next_seen = next_seen + 1 end
  local due = redis.call('ZSCORE', KEYS[3], member)
  if due and tonumber(due) <= now then
    local body = redis.call('HGET', KEYS[4], member)
    bytes = bytes + (body and #body or 0)
    if bytes > tonumber(ARGV[4]) and moved > 0 then break end
    local mark = seen and redis.call('GET', seen)
    left[#left + 1] = member
    redis.call('ZREM', KEYS[3], member) -- Before it is named once more.
    if body then
      local read, job = pcall(cmsgpack.unpack, body)
      if not read or type(job) ~= 'table' or type(job[1]) ~= 'string' or type(job[2]) ~= 'string' then
        job = {'', body} -- Without a key it ends as undecodable.
      end
      local place = redis.call('XADD', KEYS[2], '*', 'i', id or member, 'k', job[1], 'd', job[2])
      if type(job[3]) == 'string' and job[3] ~= '' then redis.call('HSET', KEYS[5], place, job[3]) end
      -- Any other mark is of another job of this id, which knows better.
      if seen and (not mark or mark == 'waiting ' .. member) then redis.call('SET', seen, 'waiting ' .. place) end
      moved, late = moved + 1, math.max(late, now - due)
    else
      if mark == 'waiting ' .. member then redis.call('DEL', seen) end
      lost = lost + 1
    end
  end
end
if left[1] then redis.call('HDEL', KEYS[4], unpack(left)) end
if fresh and redis.call('EXISTS', KEYS[3]) == 0 then -- Bodies that nothing names: the set was deleted by hand.
  lost = lost + redis.call('HLEN', KEYS[4])
  redis.call('UNLINK', KEYS[4])
end
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now), 'LIMIT', '0', ARGV[5])
local next_one = not due[1] and redis.call('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES')[2]
return {word, now, moved, late, lost, due, next_one or ''}

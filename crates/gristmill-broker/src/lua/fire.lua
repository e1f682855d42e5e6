-- fire: enqueues the job of one slot of a schedule, or passes a slot over, once under any number of nodes.
-- KEYS 1 meta (hash)  2 stream (stream)  3 schedules (hash)  4 paused (hash)  5 returned bodies (hash)
--      6 delayed (sorted set)  7 delayed bodies (hash)
--      8 seen (string) of this slot's job  9 seen (string) of the job of the slot that was fired last
-- ARGV 1 number of partitions the caller believes in  2 name  3 fingerprint of the timing  4 of all of it
--      5 up to which slot (ms) all was dealt with  6 the slot that was fired last (ms), both as the caller knows them
--      7 the slot (ms)  8 'fire', or 'pass' to pass it over  9 '1' to pass it over while the job of the last slot is not done
--      10 name of this call  11 id of the job  12 key  13 envelope
-- Reply {'fired', Redis ms, place} | {'passed', ms} | {'overlaps', ms} | {'before', ms}: its id has a mark
--   | {'already', ms, fired}: this very call was executed
--   and, having done nothing: {'no_queue'} | {'differs', partitions} | {'unknown', ms}: no record | {'other', ms}: another definition
--   | {'moved', ms, after, fired, call}: somebody dealt with a slot | {'paused', ms} | {'behind', ms} | {'early', ms} | {'full', ms, limit}
-- Repeated: 'already', or 'moved' where others went on since. A slot that is not after the last is never fired, however the clock
-- moves; one that is in the future by this server's clock is not yet.
-- Like enqueue it begins with no allowed write: when memory is full it must be refused.
local meta = redis.call('HMGET', KEYS[1], 'partitions', 'limit')
if not meta[1] then return {'no_queue'} end
if meta[1] ~= ARGV[1] then return {'differs', meta[1]} end
local now, name, slot = now_ms(), ARGV[2], ARGV[7]
local r = read_record(redis.call('HGET', KEYS[3], name))
if not r then return {'unknown', now} end
if r.timing ~= ARGV[3] or r.whole ~= ARGV[4] then return {'other', now} end
if r.call == ARGV[10] then return {'already', now, r.fired} end
if r.after ~= ARGV[5] or r.fired ~= ARGV[6] then return {'moved', now, r.after, r.fired, r.call} end
if redis.call('HEXISTS', KEYS[4], name) == 1 then return {'paused', now} end
if tonumber(slot) <= tonumber(r.after) then return {'behind', now} end
if tonumber(slot) > tonumber(now) then return {'early', now} end

local function lives(mark) -- A mark whose job was removed by hand lives as long as any: look.
  local at = string.match(mark or '', '^waiting (.*)$')
  if not at then return false end
  if not string.match(at, '^%d+%-%d+$') then return redis.call('HEXISTS', KEYS[7], at) == 1 end
  return redis.call('XRANGE', KEYS[2], at, at)[1] or redis.call('HEXISTS', KEYS[5], at) == 1
end

local answer, place = 'fired', nil
if ARGV[8] == 'pass' then
  answer = 'passed'
elseif redis.call('EXISTS', KEYS[8]) == 1 then
  answer, r.fired = 'before', slot
elseif ARGV[9] == '1' and lives(redis.call('GET', KEYS[9])) then
  answer = 'overlaps'
else
  local limit = tonumber(meta[2] or '0')
  if limit > 0 and redis.call('XLEN', KEYS[2]) + redis.call('ZCARD', KEYS[6]) >= limit then return {'full', now, meta[2]} end
  place = redis.call('XADD', KEYS[2], '*', 'i', ARGV[11], 'k', ARGV[12], 'd', ARGV[13])
  redis.call('SET', KEYS[8], 'waiting ' .. place)
  r.fired = slot
end
r.after, r.call = slot, ARGV[10]
write_record(KEYS[3], name, r)
return {answer, now, place}

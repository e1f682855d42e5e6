-- define: says that a node lives that has these definitions of schedules; makes their records where there are none.
-- KEYS 1 meta (hash)  2 stream (stream)  3 schedules (hash)  4 definitions (hash)  5 paused (hash)
-- ARGV 1 how long a definition stands after a node confirmed it (ms)  2 how far back a record may begin that nodes still know (ms)
--      then five per schedule: name, fingerprint of its timing, of all of it, definition ('' if it was told before),
--      up to which slot (ms) all was dealt with, as the node knows it ('' if it does not)
-- Reply {'no_queue'} | {'ok', Redis ms, answer per schedule}: 'stands <after> <fired> <call> <1 if paused>';
--   'other <confirmed>' where another definition stands; 'tell' where the definition is needed
-- Repeated: confirms once more. A definition that is another takes over once the one before was not confirmed for so long: while
-- old and new nodes live side by side the old one stands, so that neither flaps nor doubles. Its slots are those after that.
redis.call('XACK', KEYS[2], 'workers', '0-0')
if redis.call('EXISTS', KEYS[1]) == 0 then return {'no_queue'} end
redis.call('HLEN', KEYS[4]) -- First what may fail: a key of another type.
local now = now_ms()
local answers = {}
for at = 3, #ARGV, 5 do
  local name, timing, whole, definition, known = unpack(ARGV, at, at + 4)
  local r = read_record(redis.call('HGET', KEYS[3], name))
  if r and tonumber(r.confirmed) > tonumber(now) then r.confirmed = now end -- A clock that was set back.
  local stands = r and r.timing == timing and r.whole == whole
  local over = not r or tonumber(r.confirmed) + tonumber(ARGV[1]) <= tonumber(now)
  if not stands and over and definition ~= '' then
    if not r then
      local after = now
      if known ~= '' then
        local least = string.format('%.0f', now - ARGV[2])
        after = later(tonumber(known) > tonumber(now) and now or known, least)
      end
      r = {after = after, fired = '0', call = '-'}
    elseif r.timing ~= timing then
      r.after = later(r.after, r.confirmed)
    end
    r.timing, r.whole, stands = timing, whole, true
    redis.call('HSET', KEYS[4], name, definition)
  end
  if stands then
    r.confirmed = now
    write_record(KEYS[3], name, r)
    local paused = redis.call('HEXISTS', KEYS[5], name)
    answers[#answers + 1] = table.concat({'stands', r.after, r.fired, r.call, paused}, ' ')
  elseif over then
    answers[#answers + 1] = 'tell'
  else
    write_record(KEYS[3], name, r)
    answers[#answers + 1] = 'other ' .. r.confirmed
  end
end
return {'ok', now, answers}

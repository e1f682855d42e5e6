-- schedule: a schedule's record in the hash `schedules` (schedule.rs has its meaning). Prepended to the scripts that touch it.
-- KEYS and ARGV: none of its own.  Reply: none.  Repeated: these are functions; their callers say.
local function read_record(text) -- A record that is not ours counts as none; schedule.rs reads the same ones.
  local r = {}
  r.timing, r.whole, r.after, r.fired, r.call, r.confirmed = string.match(text or '', '^(%x+) (%x+) (%d+) (%d+) (%S+) (%d+)$')
  if not r.timing or #r.after > 15 or #r.fired > 15 or #r.confirmed > 15 then return false end
  return r
end
local function write_record(key, name, r)
  redis.call('HSET', key, name, table.concat({r.timing, r.whole, r.after, r.fired, r.call, r.confirmed}, ' '))
end
local function later(one, other) -- Of two times in digits.
  return tonumber(one) > tonumber(other) and one or other
end
local function now_ms()
  local time = redis.call('TIME')
  return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end

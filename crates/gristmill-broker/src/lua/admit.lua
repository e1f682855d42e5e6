-- admit: lets runs of one kind begin, as far as the kind's limits allow: takes a slot and a token for each in one step.
-- KEYS 1 limits (hash, see limit.lua)  2 holders of the kind (sorted set: name to until, ms)  3 owners of the kind (hash:
--      name to '<incarnation#epoch.asked> <ttl ms> <since ms> <job id>')  4 rate of the kind (string: us)  5 waiters of the kind
--      (hash: incarnation to '<since ms> <seen ms>')  then per job the rate of its key (string: us)
-- ARGV 1 kind  2 incarnation  3 ttl of a slot (ms)  4 limit where none is written (four words)
--      5 '1' where this node has no slot of the kind, and may be waited for
--      then three per job: name ('<partition> <place>'), '<epoch>.<asked>' (which asking of the incarnation), job id
-- Reply {'ok', answer per job}
--   answer: 'admitted' it has a slot  'passed' it needs none  'full N' N runs hold all there are
--           'until N' the rate's next token in N ms, of the kind  'key_until N' of its key
--           'fenced' a younger epoch has this job's slot
-- Repeated: a slot that is held is held; may cost one more token, never gives one twice.
-- A slot is held by name: a younger epoch of the same job inherits it, and it is not counted twice. It lapses at its time,
-- on this clock. A node without a slot that has asked in vain for a second is let in before those that did not wait as long:
-- a slot is left for it, as long as it asks again every two seconds. A time that is further away than the slot was taken for is of before the clock was set back.
redis.call('HDEL', KEYS[3], '') -- The write that is allowed when memory is full; XACK needs a stream.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now, ttl = math.floor(now_us / 1000), tonumber(ARGV[3])
local form = '^(%d+) ([%d.]+) (%d+) (%a+)'
local limit = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if not string.match(limit, form) then
  limit = ARGV[4]
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%s %.0f %s', limit, now, ARGV[2]))
end
local most, interval, burst, per = string.match(limit, form)
most, interval, burst = tonumber(most), tonumber(interval), tonumber(burst)
local far = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. string.format('%.0f', now + ttl), '+inf', 'LIMIT', 0, 200)
for _, name in ipairs(far) do
  local its = tonumber(string.match(redis.call('HGET', KEYS[3], name) or '', '^%S+ (%d+)') or ttl)
  if tonumber(redis.call('ZSCORE', KEYS[2], name)) > now + its then
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + its), name)
  end
end
local lapsed = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 1000)
for _, name in ipairs(lapsed) do
  redis.call('ZREM', KEYS[2], name)
  redis.call('HDEL', KEYS[3], name)
end
local running = redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%.0f', now), '+inf')
-- Slots that are left for nodes that have waited for longer than this one.
local waiting, mine, left = redis.call('HGETALL', KEYS[5]), nil, 0
for n = 1, #waiting, 2 do
  local since, seen = string.match(waiting[n + 1], '^(%d+) (%d+)$')
  if not seen or tonumber(seen) + 2000 < now or tonumber(since) > now then
    redis.call('HDEL', KEYS[5], waiting[n])
  elseif waiting[n] == ARGV[2] then
    mine = tonumber(since)
  end
end
for n = 1, #waiting, 2 do
  local since, seen = string.match(waiting[n + 1], '^(%d+) (%d+)$')
  if seen and tonumber(seen) + 2000 >= now and waiting[n] ~= ARGV[2] and tonumber(since) + 1000 <= now then
    if not mine or tonumber(since) < mine then left = left + 1 end
  end
end
local answers = {}
for at = 6, #ARGV, 3 do
  local name, asked, id = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local held = tonumber(redis.call('ZSCORE', KEYS[2], name) or '0') > now
  local its = string.match(held and redis.call('HGET', KEYS[3], name) or '', '^%S+#(%d+)%.%d+ ') or '0'
  local younger = tonumber(its) > tonumber(string.match(asked, '^%d+'))
  local rate = per == 'key' and KEYS[6 + (at - 6) / 3] or KEYS[4]
  local tat, wait = now_us, 0
  if interval > 0 then
    tat = math.max(tonumber(redis.call('GET', rate) or '0') or 0, now_us)
    local latest = now_us + burst * interval
    if tat > latest then -- Written, or it would be as far away at every asking.
      tat = latest
      redis.call('SET', rate, string.format('%.2f', tat), 'PX', string.format('%.0f', math.ceil(burst * interval / 1000) + 1000))
    end
    wait = math.ceil((tat + interval - burst * interval - now_us) / 1000)
  end
  local answer = 'passed'
  if younger then
    answer = 'fenced'
  elseif most > 0 and not held and running + left >= most then
    answer = 'full ' .. running
    if ARGV[5] == '1' then redis.call('HSET', KEYS[5], ARGV[2], string.format('%.0f %.0f', mine or now, now)) end
  elseif wait > 0 then
    answer = string.format('%s %.0f', per == 'key' and 'key_until' or 'until', wait)
  else
    if interval > 0 then
      local life = math.ceil((tat + interval - now_us) / 1000) + 1000
      redis.call('SET', rate, string.format('%.2f', tat + interval), 'PX', string.format('%.0f', life))
    end
    if most > 0 then
      answer = 'admitted'
      redis.call('ZADD', KEYS[2], string.format('%.0f', now + ttl), name)
      redis.call('HSET', KEYS[3], name, string.format('%s#%s %s %.0f %s', ARGV[2], asked, ARGV[3], now, id))
      if not held then
        running = running + 1
        redis.call('HDEL', KEYS[5], ARGV[2])
      end
    end
  end
  answers[#answers + 1] = answer
end
return {'ok', answers}

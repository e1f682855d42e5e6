-- keep: prolongs slots of one kind that this incarnation holds.
-- KEYS 1 limits (hash)  2 holders of the kind (sorted set: name to until, ms)  3 owners of the kind (hash)
-- ARGV 1 kind  2 incarnation  3 ttl of a slot (ms)  then three per slot: name, '<epoch>.<asked>', job id
-- Reply {'ok', answer per slot}
--   answer: 'kept'  'lost' another has it, or it lapsed and there is no room to take it again
-- Repeated: prolongs once more. A slot of the same job that another took over is never touched. One that lapsed is of a run
-- that lives: it is taken again where the limit allows, so that what runs is counted.
redis.call('HDEL', KEYS[3], '') -- The write that is allowed when memory is full; XACK needs a stream.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most = tonumber(string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+)') or '0')
local running = redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%.0f', now), '+inf')
local answers = {}
for at = 4, #ARGV, 3 do
  local name, owner, answer = ARGV[at], ARGV[2] .. '#' .. ARGV[at + 1], 'lost'
  local line = redis.call('HGET', KEYS[3], name)
  local held = line and tonumber(redis.call('ZSCORE', KEYS[2], name) or '0') > now
  if held and string.match(line, '^%S+') == owner then
    answer = 'kept'
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[3]), name)
  elseif not held and running < most then
    answer, running = 'kept', running + 1
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[3]), name)
    redis.call('HSET', KEYS[3], name, string.format('%s %s %.0f %s', owner, ARGV[3], now, ARGV[at + 2]))
  end
  answers[#answers + 1] = answer
end
return {'ok', answers}

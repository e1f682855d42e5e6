-- free: gives slots of one kind back.
-- KEYS 1 holders of the kind (sorted set: name to until, ms)  2 owners of the kind (hash: name to '<incarnation#epoch.asked> ...')
-- ARGV 1 incarnation  then two per slot: name, '<epoch>.<asked>'
-- Reply {'ok', answer per slot}
--   answer: 'freed'  'not_held' it lapsed, or another has it
-- Repeated: frees nothing. A slot of the same job that another took over is never touched.
redis.call('HDEL', KEYS[2], '') -- The write that is allowed when memory is full; XACK needs a stream.
local answers = {}
for at = 2, #ARGV, 2 do
  local name, answer = ARGV[at], 'not_held'
  if string.match(redis.call('HGET', KEYS[2], name) or '', '^%S+') == ARGV[1] .. '#' .. ARGV[at + 1] then
    redis.call('ZREM', KEYS[1], name)
    redis.call('HDEL', KEYS[2], name)
    answer = 'freed'
  end
  answers[#answers + 1] = answer
end
return {'ok', answers}

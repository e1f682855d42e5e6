-- start: writes start marks, before the runs they speak of begin.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 returned (sorted set)
-- ARGV 1 incarnation  2 epoch  3 number of this call  then three per job: place, turn, how:
--      'beside' others run in the process · 'alone' none does, and none will until it is settled
--      'look' as beside, of a run that only looks what became of an interrupted one: it stays noted as interrupted
--      'look_alone' both · 'not' it was not run after all: the mark goes
--      'interrupted' it was, but not to its end: the mark goes, and it is noted as interrupted
-- Reply {'ok' | 'already', answer per job} | {'fenced', ..} | {'gap', number}
--   answer: 'started', 'gone' (claimed no more), 'at_turn N'
-- Number 0, epoch 0: in a queue with ordering none, where no lease is. A job is then claimed if this incarnation claims it.
-- Repeated: writes nothing, and answers how each job stands.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local unordered, fresh = ARGV[3] == '0', true
if not unordered then
  local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number')
  if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
  local number = tonumber(lease[3] or '0')
  if tonumber(ARGV[3]) > number + 1 then return {'gap', number} end
  fresh = tonumber(ARGV[3]) == number + 1
  if fresh then redis.call('HSET', KEYS[1], 'number', ARGV[3]) end
end
local me = '/' .. ARGV[1] .. '#' .. ARGV[2]
local answers = {}
for at = 4, #ARGV, 3 do
  local place, turn, how = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local state, answer = read_state(redis.call('HGET', KEYS[3], place)), 'started'
  local claims
  if unordered then
    claims = redis.call('XPENDING', KEYS[2], 'workers', place, place, 1, ARGV[1] .. '#0')
  else
    claims = redis.call('XPENDING', KEYS[2], 'workers', place, place, 1)
  end
  if #claims == 0 and (unordered or not redis.call('ZSCORE', KEYS[4], place)) then
    answer = 'gone'
  elseif state.turn ~= turn then
    answer = 'at_turn ' .. state.turn
  elseif fresh then
    if how == 'beside' or how == 'alone' then state.interrupted = '0' end
    if how == 'interrupted' then state.interrupted = '1' end
    if how == 'not' or how == 'interrupted' then
      state.mark = '-'
    else
      state.mark = ((how == 'alone' or how == 'look_alone') and 'alone' or 'beside') .. me
    end
    write_state(KEYS[3], place, state)
  end
  answers[#answers + 1] = answer
end
return {fresh and 'ok' or 'already', answers}

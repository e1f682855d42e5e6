-- cancel: a person takes back a job that waits. Needs no lease: what is claimed is its owner's to end, and it is asked.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 returned (sorted set)  5 asked (list)
--      6 delayed (sorted set)  7 delayed bodies (hash)  8 seen (string) of the job's id; where the id is not a producer's, of anything
-- ARGV 1 place, or '' and the member of delayed as 7  2 the job's id  3 '1' if the id is the producer's, else '0'  4 window of a mark after its verdict (ms)
--      5 '<who>/<why>', one word  6 what its owner needs to know it by ('<own> <bytes of the id> <id><key>')  7 member of delayed
-- Reply {'cancelled'} nobody had claimed it, and it is gone | {'asked'} its owner ends it, unless its run ends first
--      | {'not_waiting'} there is no such job at this place
-- Repeated: 'not_waiting' after 'cancelled'; 'asked' again, and nothing is written: the first who asked stays named.
-- Only a mark that names this very place or member becomes 'cancelled'. It absorbs nothing: the id may come again (V24).
redis.call('XACK', KEYS[2], 'workers', '0-0')
redis.call('LLEN', KEYS[5]) -- First what may fail: a key of another type.
local place = ARGV[1]
local time = redis.call('TIME')
local said = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)) .. '/' .. ARGV[5]
if place == '' then
  redis.call('HLEN', KEYS[7])
  local there = redis.call('ZREM', KEYS[6], ARGV[7]) + redis.call('HDEL', KEYS[7], ARGV[7])
  if there == 0 then return {'not_waiting'} end
  if ARGV[3] == '1' and redis.pcall('GET', KEYS[8]) == 'waiting ' .. ARGV[7] then
    redis.call('SET', KEYS[8], 'cancelled ' .. said, 'PX', ARGV[4])
  end
  return {'cancelled'}
end
local entry = redis.call('XRANGE', KEYS[2], place, place)[1]
if entry then
  local id = ''
  for n = 1, #entry[2], 2 do
    if entry[2][n] == 'i' then id = entry[2][n + 1] end
  end
  if id ~= ARGV[2] then return {'not_waiting'} end -- A place may come again after a failover.
  if #redis.call('XPENDING', KEYS[2], 'workers', place, place, 1) == 0 then
    redis.call('XDEL', KEYS[2], place)
    redis.call('HDEL', KEYS[3], place)
    if ARGV[3] == '1' and redis.pcall('GET', KEYS[8]) == 'waiting ' .. place then
      redis.call('SET', KEYS[8], 'cancelled ' .. said, 'PX', ARGV[4])
    end
    return {'cancelled'}
  end
elseif not redis.call('ZSCORE', KEYS[4], place) then
  return {'not_waiting'}
end
local state = read_state(redis.call('HGET', KEYS[3], place))
if string.match(state.request, '^cancel/') then return {'asked'} end
state.request = 'cancel/' .. said
write_state(KEYS[3], place, state)
-- Without an order there is no lease: whoever claims it hears with its next extend (extend.lua). Where nobody ever owned it,
-- whoever does next reads the line itself.
if redis.call('HEXISTS', KEYS[1], 'epoch') == 1 then redis.call('RPUSH', KEYS[5], place .. ' ' .. ARGV[6]) end
redis.call('HINCRBY', KEYS[1], 'changes', '1')
return {'asked'}

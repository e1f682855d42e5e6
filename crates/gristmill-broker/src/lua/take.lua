-- take: what lies beside the stream: jobs that came back from the dead, the keys whose lanes wait for a person, and the jobs
--   that are to be cancelled.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 returned (sorted set)  5 returned bodies (hash)  6 held (hash)
--      7 asked (list)
-- ARGV 1 incarnation  2 epoch  3 number of this call  4 after (value of `changes`): only jobs that came back later
--      5 most jobs  6 cursor of the held keys, '0' first, '' not to read them
-- Reply {'ok', changes, {{place, record, state or '', came back at, } ...}, '1' if there are more jobs, next cursor ('0': the
--   end), {key, hold ...}, now (ms), {{item of asked, state or ''} ...}, '1' if more of them are there} | {'already'} | {'fenced', ..} | {'gap', number}
--   Between two slices a person may act: whoever is told another value of `changes` reads the held keys again.
-- Repeated: 'already', and nothing is read; suspicion that the first call raised stands in `state`, and so does what is asked
-- of a job, beside the list that is emptied here. The tenure ends, and the next one reads every line.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local lease = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'number', 'changes')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return {'fenced', lease[1] or '', lease[2] or ''} end
local number = tonumber(lease[3] or '0')
if tonumber(ARGV[3]) <= number then return {'already'} end
if tonumber(ARGV[3]) ~= number + 1 then return {'gap', number} end
redis.call('HSET', KEYS[1], 'number', ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rows = redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[4], '+inf', 'WITHSCORES', 'LIMIT', '0', ARGV[5])
local jobs = {}
for n = 1, #rows, 2 do
  local place = rows[n]
  local ms, seq = string.match(place, '^(%d+)%-(%d+)$')
  if ms and #ms < 20 and #seq < 20 then
    local line = redis.call('HGET', KEYS[3], place)
    local state = read_state(line)
    if found_marked(state, ARGV[1], now) then line = write_state(KEYS[3], place, state) end
    local came_back = string.format('%.0f', tonumber(rows[n + 1]))
    jobs[#jobs + 1] = {place, redis.call('HGET', KEYS[5], place) or '', line or '', came_back}
  else
    redis.call('ZREM', KEYS[4], place) -- A place of no job: it could never be settled, and the census would count it.
  end
end
local held = ARGV[6] == '' and {'0', {}} or redis.call('HSCAN', KEYS[6], ARGV[6], 'COUNT', '500')
local asked = {}
for n = 1, 100 do
  local item = redis.call('LPOP', KEYS[7])
  if not item then break end
  local place = string.match(item, '^(%d+%-%d+) ')
  asked[n] = {item, place and redis.call('HGET', KEYS[3], place) or ''}
end
return {'ok', lease[4] or '0', jobs, #rows == 2 * tonumber(ARGV[5]) and '1' or '0', held[1], held[2], now, asked,
  redis.call('EXISTS', KEYS[7]) == 1 and '1' or '0'}

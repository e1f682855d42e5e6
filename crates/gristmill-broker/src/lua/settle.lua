-- settle: writes the verdicts of a batch: effects, outbox, acknowledgement and deletion of each job in one step.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)  4 dead (sorted set)  5 dead bodies (hash)
--      6 outbox (stream)  7 returned (sorted set)  8 returned bodies (hash)  9 originals (hash)  10 held (hash)
--      where the ordering is none also 11 meta (hash)  12 delayed (sorted set)  13 delayed bodies (hash)
--      then, in the order of the jobs that need them: seen (string), entity (hash)
-- ARGV 1 incarnation  2 epoch  3 number of this call  4 window of a mark after its verdict (ms)
--      5 how many plain jobs (turn 0, done, no mark, no effect)  then their places, ascending; then the other jobs, each:
--      'done'  place turn marked('0'|'1') entity('' | 'put' | 'delete') version(20 digits) state n  n * (queue id key envelope due)
--      'retry' place turn marked attempts delay(ms) why interrupted history   the turn rises by one; due `delay` from now, by this clock
--      'discard' place turn marked        done without effect; the mark says so, and its id may come again
--      'duplicate' | 'stale' place turn marked   done without effect, which is elsewhere than in Redis; the mark says so
--      'cancelled' | 'expired' place turn marked   ended without a run and without effect; the mark says so, and who asked for it
--      'dead'  place turn marked dead_id at(ms) hold('0'|'1') key body      hold: the key's lane waits for a person
--      'bury'  the same, of a job that was acknowledged before its run
--      due: when an emitted job is due: '' at once, ms since 1970, or '+' and ms from now, by this clock
-- Reply {'ok' | 'already', {plain places that are gone}, answer per other job} | {'fenced', ..} | {'gap', number}
--   answer: done, stale, duplicate, discarded, cancelled, expired, retried, dead, gone, 'at_turn N', 'rejected why'
-- Number 0, epoch 0: in a queue with ordering none, where no lease is. A job is then claimed if this incarnation claims it;
-- a retry leaves the stream for `delayed`, and its line and its mark go with it.
-- Repeated, under a number: nothing is written; each job is answered as it stands: gone (the first call took effect), or at which turn.
-- Under number 0 what the first call settled is gone, and only the rest is written.
-- The XACK that answers 1 is the test whether a job is still claimed, and its first write. What may fail is read first,
-- so that a job's effects are written whole or not at all; a refused job gets its claim back and harms no other (V39).
-- A job that came back from the dead lies in `returned` and not in the stream; there it is claimed as long as it lies there.
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
local window, plain = ARGV[4], tonumber(ARGV[5])
local plain_left = plain

local me = ARGV[1] .. '#' .. ARGV[2]
local has_returned = not unordered and redis.call('EXISTS', KEYS[7]) == 1
local function returned(place) return has_returned and redis.call('ZSCORE', KEYS[7], place) end
local function mine(place) -- How often it was claimed, if this is the last who did.
  local claim = redis.call('XPENDING', KEYS[2], 'workers', place, place, 1, me)[1]
  return claim and claim[4]
end
local function claimed(place)
  if unordered then return mine(place) end
  return returned(place) or #redis.call('XPENDING', KEYS[2], 'workers', place, place, 1) == 1
end
local function turn_of(place) return read_state(redis.call('HGET', KEYS[3], place)).turn end
local function leave_returned(place, dies)
  redis.call('ZREM', KEYS[7], place)
  redis.call('HDEL', KEYS[8], place)
  redis.call('HDEL', KEYS[3], place)
  if not dies then redis.pcall('HDEL', KEYS[9], place) end -- A letter may be replayed once more.
end
local function standing(place)
  return claimed(place) and 'at_turn ' .. turn_of(place) or 'gone'
end

local function behind(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if a_ms ~= b_ms then return tonumber(a_ms) > tonumber(b_ms) end
  return tonumber(a_seq) > tonumber(b_seq)
end
local function last_delivered()
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[2])) do
    local name, last
    for n = 1, #group, 2 do
      if group[n] == 'name' then name = group[n + 1] end
      if group[n] == 'last-delivered-id' then last = group[n + 1] end
    end
    if name == 'workers' then return last end
  end
  return '0-0'
end

local gone = {}
if plain > 0 then
  local places = {}
  for n = 1, plain do places[n] = ARGV[5 + n] end
  if unordered then -- One look at what this incarnation claims between the first of them and the last.
    local held = {}
    local rows = redis.call('XPENDING', KEYS[2], 'workers', places[1], places[plain], 2 * plain, me)
    for _, claim in ipairs(rows) do held[claim[1]] = true end
    for n = plain, 1, -1 do
      if not held[places[n]] and not (#rows == 2 * plain and mine(places[n])) then
        gone[#gone + 1] = table.remove(places, n)
      end
    end
  end
  for n = fresh and has_returned and plain or 0, 1, -1 do -- One that came back stands at turn 0 if its line was lost.
    if returned(places[n]) and turn_of(places[n]) == '0' then leave_returned(table.remove(places, n)) end
  end
  plain_left = #places
  if fresh and plain_left > 0 and redis.call('EXISTS', KEYS[3]) == 1 then -- A plain job stands at turn 0; one that does not is not settled.
    local lines, lined = redis.call('HMGET', KEYS[3], unpack(places)), {}
    for n = plain_left, 1, -1 do
      if lines[n] and read_state(lines[n]).turn ~= '0' then
        gone[#gone + 1] = table.remove(places, n)
      elseif lines[n] then
        lined[#lined + 1] = places[n]
      end
    end
    if lined[1] then redis.call('HDEL', KEYS[3], unpack(lined)) end
    plain_left = #places
  end
  if not fresh then
    for n = 1, plain do
      if not claimed(places[n]) then gone[#gone + 1] = places[n] end
    end
  elseif plain_left == 0 then
    places = nil
  elseif redis.call('XACK', KEYS[2], 'workers', unpack(places)) == plain_left then
    redis.call('XDEL', KEYS[2], unpack(places))
  else -- Some were not claimed. What was delivered and is still in the stream was; what is not is gone.
    local delivered = last_delivered()
    for n = 1, plain_left do
      if behind(places[n], delivered) or redis.call('XDEL', KEYS[2], places[n]) == 0 then
        gone[#gone + 1] = places[n]
      end
    end
  end
end

local next_key = unordered and 14 or 11
local function take_key()
  next_key = next_key + 1
  return KEYS[next_key - 1]
end

-- Each verdict is read from ARGV into a table whether or not it is written, so that the cursor stays right.
local at = 6 + plain
local function take(n)
  at = at + n
  return unpack(ARGV, at - n, at - 1)
end

local marks, marked = {}, {} -- The marks of the batch are read in one command; a job sees what those before it left.
local function leave_mark(job, mark, ...)
  if not job.seen then return end
  redis.call('SET', job.seen, mark, ...)
  marks[job.seen] = mark
end

local without_effect = {waiting = true, dead = true, discarded = true, cancelled = true, expired = true}
local function absolute(due) -- Counted from the settle, however long its job lies in the outbox.
  if string.sub(due, 1, 1) ~= '+' then return due end
  local time = redis.call('TIME')
  return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + string.sub(due, 2))
end

local function write_done(job)
  local version = job.entity and redis.call('HGET', job.entity, 'version')
  local mark = job.seen and marks[job.seen]
  if job.emits[1] then redis.call('XLEN', KEYS[6]) end
  -- A copy that waits, died, or ended without a run has left no effect (V34). Any other mark counts as one, also a foreign one.
  local standing = mark and (string.match(mark, '^%a+') or '')
  if standing and not without_effect[standing] then return 'duplicate' end
  local word = 'done'
  if job.entity and version and job.version <= version then
    word = 'stale'
  elseif job.entity then
    local deleted = job.change == 'delete'
    redis.call('HINCRBY', job.entity, 'changes', 1) -- First: it alone can still fail, at a field that is no number.
    redis.call('HSET', job.entity, 'version', job.version, 'state', deleted and '' or job.state, 'deleted', deleted and '1' or '0')
  end
  if word == 'done' then
    for _, emit in ipairs(job.emits) do
      if emit[5] == '' then
        redis.call('XADD', KEYS[6], '*', 'q', emit[1], 'i', emit[2], 'k', emit[3], 'd', emit[4])
      else
        redis.call('XADD', KEYS[6], '*', 'q', emit[1], 'i', emit[2], 'k', emit[3], 'd', emit[4], 'at', absolute(emit[5]))
      end
    end
  end
  leave_mark(job, word == 'done' and 'applied' or word, 'PX', window)
  return word
end

local function put_back(job)
  local time = redis.call('TIME')
  local state = read_state(redis.call('HGET', KEYS[3], job.place))
  state.turn, state.attempts, state.why = string.format('%d', job.turn + 1), job.attempts, job.why
  state.due = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + job.delay)
  state.mark, state.interrupted, state.history = '-', job.interrupted, job.history
  -- Who asks to skip a wait has seen it out; a job that is to be cancelled still is.
  if not string.match(state.request, '^cancel/') then state.request = '-' end
  return state
end

local function write_delayed(job)
  redis.call('ZCARD', KEYS[12]) -- First what may fail: keys of another type.
  redis.call('HLEN', KEYS[13])
  local entry, fields = redis.call('XRANGE', KEYS[2], job.place, job.place)[1], {}
  if not entry then return 'gone' end -- Deleted by hand.
  for n = 1, #entry[2], 2 do fields[entry[2][n]] = entry[2][n + 1] end
  local state = put_back(job)
  local seq = string.format('%016.0f', redis.call('HINCRBY', KEYS[11], 'delayed_seq', '1'))
  local member = seq .. ':' .. (job.seen and '1' or '0') .. ':' .. (fields.i or '')
  redis.call('HSET', KEYS[13], member, cmsgpack.pack({fields.k or '', fields.d or '', line_of(state)}))
  redis.call('ZADD', KEYS[12], state.due, member)
  local mark = job.seen and marks[job.seen]
  if not mark or mark == 'waiting ' .. job.place then leave_mark(job, 'waiting ' .. member) end
  return 'retried'
end

local function write_discard(job)
  leave_mark(job, 'discarded', 'PX', window)
  return 'discarded'
end

local function write_unrun(job)
  local said = string.match(read_state(redis.call('HGET', KEYS[3], job.place)).request, '^cancel/(%S+)$')
  local mark = job.verdict == 'cancelled' and said and 'cancelled ' .. said or job.verdict
  leave_mark(job, mark, 'PX', window)
  return job.verdict
end

local function write_without(job)
  leave_mark(job, job.verdict == 'duplicate' and 'applied' or 'stale', 'PX', window)
  return job.verdict
end

local function write_dead(job)
  redis.call('ZCARD', KEYS[4]) -- First what may fail: a key of another type.
  redis.call('HLEN', KEYS[10])
  redis.call('HSET', KEYS[5], job.dead_id, job.body)
  redis.call('ZADD', KEYS[4], job.at, job.dead_id)
  if job.hold == '1' then redis.call('HSET', KEYS[10], job.key, job.dead_id .. ' ' .. job.at .. ' ' .. job.place) end
  leave_mark(job, 'dead ' .. job.dead_id)
  return 'dead'
end

local jobs = {}
while at <= #ARGV do
  local job = {}
  job.verdict, job.place, job.turn = take(3)
  if job.verdict == 'done' then
    local mark, count
    mark, job.change, job.version, job.state, count = take(5)
    job.seen = mark == '1' and take_key()
    job.entity = job.change ~= '' and take_key()
    job.emits, job.write = {}, write_done
    for n = 1, tonumber(count) do job.emits[n] = {take(5)} end
  elseif job.verdict == 'retry' then
    local mark
    mark, job.attempts, job.delay, job.why, job.interrupted, job.history = take(6)
    job.seen = mark == '1' and take_key()
    job.write = write_delayed
  elseif job.verdict == 'discard' then
    job.seen = take(1) == '1' and take_key()
    job.write = write_discard
  elseif job.verdict == 'duplicate' or job.verdict == 'stale' then
    job.seen = take(1) == '1' and take_key()
    job.write = write_without
  elseif job.verdict == 'cancelled' or job.verdict == 'expired' then
    job.seen = take(1) == '1' and take_key()
    job.write = write_unrun
  else
    local mark
    mark, job.dead_id, job.at, job.hold, job.key, job.body = take(6)
    job.seen = mark == '1' and take_key()
    job.write = write_dead
  end
  if job.seen then marked[#marked + 1] = job.seen end
  jobs[#jobs + 1] = job
end
if fresh and marked[1] then
  for n, mark in ipairs(redis.call('MGET', unpack(marked))) do marks[marked[n]] = mark end
end

-- Where nothing was ever put back, no job has a turn to look up or to remove.
local has_state = redis.call('EXISTS', KEYS[3]) == 1
local answers, settled = {}, {}
for n, job in ipairs(jobs) do
  local answer
  local claims = unordered and job.verdict ~= 'bury' and mine(job.place)
  if job.verdict == 'bury' then
    if fresh and not (unordered and redis.call('HEXISTS', KEYS[5], job.dead_id) == 1) then
      local written, word = pcall(job.write, job)
      answer = written and word or 'rejected ' .. (type(word) == 'table' and word.err or tostring(word))
    else
      answer = redis.call('HEXISTS', KEYS[5], job.dead_id) == 1 and 'gone' or 'at_turn ' .. job.turn
    end
  elseif not fresh or (has_state and turn_of(job.place) or '0') ~= job.turn then
    answer = standing(job.place)
  elseif job.verdict == 'retry' and not unordered then
    if claimed(job.place) then
      write_state(KEYS[3], job.place, put_back(job))
      has_state, answer = true, 'retried'
    else
      answer = 'gone'
    end
  elseif returned(job.place) then
    local written, word = pcall(job.write, job)
    if written then
      leave_returned(job.place, job.verdict == 'dead')
      answer = word
    else
      answer = 'rejected ' .. (type(word) == 'table' and word.err or tostring(word))
    end
  elseif (unordered and not claims) or redis.call('XACK', KEYS[2], 'workers', job.place) == 0 then
    answer = 'gone'
  else
    local written, word = pcall(job.write, job)
    if written then
      settled[#settled + 1] = job.place
      if unordered and has_state and job.verdict ~= 'dead' then redis.pcall('HDEL', KEYS[9], job.place) end
      if has_state then redis.call('HDEL', KEYS[3], job.place) end
      answer = word
    else
      redis.call('XCLAIM', KEYS[2], 'workers', me, '0', job.place, 'RETRYCOUNT', claims or 1, 'FORCE', 'JUSTID')
      answer = 'rejected ' .. (type(word) == 'table' and word.err or tostring(word))
    end
  end
  answers[n] = answer
end
if settled[1] then redis.call('XDEL', KEYS[2], unpack(settled)) end
return {fresh and 'ok' or 'already', gone, answers}

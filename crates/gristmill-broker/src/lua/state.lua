-- state: the words of a job's line in the hash `state` (state.rs has their meaning). Prepended to the scripts that touch it.
-- KEYS and ARGV: none of its own.  Reply: none.  Repeated: these are functions; their callers say.
local STATE = '^(%d+) (%d+) (%d+) (%S+) (%S+) (%d) (%S+) (%S+) (%d+) (%S+) ?(.*)$'
local function read_state(line) -- A line that is not ours counts as none; state.rs reads the same ones, to the byte.
  local s = {turn = '0', attempts = '0', due = '0', why = '-', suspicion = '-', interrupted = '0', mark = '-', crashes = '-',
    replays = '0', request = '-', history = ''}
  local turn, attempts, due, why, suspicion, interrupted, mark, crashes, replays, request, history
  if line then
    turn, attempts, due, why, suspicion, interrupted, mark, crashes, replays, request, history = string.match(line, STATE)
  end
  if turn and #turn < 10 and #attempts < 10 and #replays < 10 then
    turn = string.format('%d', turn)
    s.turn, s.attempts, s.due, s.why, s.suspicion, s.interrupted = turn, attempts, due, why, suspicion, interrupted
    s.mark, s.crashes, s.replays, s.request, s.history = mark, crashes, replays, request, history
  end
  return s
end
local function line_of(s)
  return table.concat({s.turn, s.attempts, s.due, s.why, s.suspicion, s.interrupted, s.mark, s.crashes, s.replays, s.request,
    s.history}, ' ')
end
local function write_state(key, place, s) -- A line that says nothing is none.
  local line = line_of(s)
  if line == '0 0 0 - - 0 - - 0 - ' then
    redis.call('HDEL', key, place)
    return ''
  end
  redis.call('HSET', key, place, line)
  return line
end
-- A start mark of another incarnation was found without a settle: its process is gone, or has lost its lease. The suspicion
-- grows by one step; a run that was alone is charged, and the charge names the run. True if there was such a mark.
local function found_marked(s, me, now)
  local how, run = string.match(s.mark, '^(%a+)/(.+#%d+)$')
  if not how or string.match(run, '^(.*)#%d+$') == me then return false end
  if how == 'alone' then
    local crash = string.format('%s/%s/%.0f', run, s.turn, now)
    s.crashes = s.crashes == '-' and crash or s.crashes .. ',' .. crash
  end
  s.suspicion = (how == 'alone' or s.suspicion ~= '-') and 'strong' or 'weak'
  s.mark, s.interrupted = '-', '1'
  return true
end

-- absolve: a node that lives takes back what the loss of its lease made of a run that was alone: the mark, or the charge.
-- KEYS 1 lease (hash)  2 stream (stream)  3 state (hash)
-- ARGV 1 incarnation  2 epoch and 3 turn of the run  4 its place
-- Reply {'absolved'} | {'nothing'} neither is there | {'mine'} no charge is there, and the lease is this incarnation's: its
--   mark stays. (Who lost the lease and has it again may have been charged in between.)
-- Repeated: 'nothing' or 'mine'. The suspicion stays.
redis.call('XACK', KEYS[2], 'workers', '0-0')
local mine = redis.call('HGET', KEYS[1], 'incarnation') == ARGV[1]
local unchanged = {mine and 'mine' or 'nothing'}
local line = redis.call('HGET', KEYS[3], ARGV[4])
if not line then return unchanged end
local state, run, changed = read_state(line), ARGV[1] .. '#' .. ARGV[2], false
if not mine and state.mark == 'alone/' .. run then
  state.mark, changed = '-', true
end
local left = {}
for crash in string.gmatch(state.crashes, '[^,]+') do
  if crash ~= '-' and string.sub(crash, 1, #run + #ARGV[3] + 2) == run .. '/' .. ARGV[3] .. '/' then
    changed = true
  elseif crash ~= '-' then
    left[#left + 1] = crash
  end
end
if not changed then return unchanged end
state.crashes = left[1] and table.concat(left, ',') or '-'
write_state(KEYS[3], ARGV[4], state)
return {'absolved'}

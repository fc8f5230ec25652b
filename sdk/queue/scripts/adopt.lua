-- Answers again for tasks in the listener's own reserved list of which it does not know: the reply
-- of their reserve never came. Starts them when a process ID is given. The list is the truth: a task
-- in it whose hash does not say so, because its reserve was cut short, is the listener's all the same.
-- An entry whose task is missing or finished, or which another listener's list has, is dropped.
-- KEYS    1 reserved of the listener  2 started
-- ARGV    1 clock override  2 listener  3 process ID or ""  4 prefix of task hashes
--         5 prefix of bytes hashes  6 most bytes of parameters a task  7 most bytes together
--         8 plugin  9 digest of the plugin (both only with a process ID)
--         10 prefix of the queue's reserved lists, then the IDs
-- RETURNS {{dropped, clock, ""}, {id, run, created, eta, attempts, max_attempts, size of parameters,
--         parameters or nil if too large}, ...}
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'set')
if bad then return bad end

local clock = now(ARGV[1])
local listener, pid = ARGV[2], ARGV[3]
local most, room = tonumber(ARGV[6]), tonumber(ARGV[7])
local out, dropped = { 0 }, 0
for i = 11, #ARGV do
  local id = ARGV[i]
  local key = ARGV[4] .. id
  local hash = redis.pcall('HMGET', key, 'status', 'node', 'run', 'created', 'eta', 'attempts', 'max_attempts')
  local status = not hash.err and hash[1]
  local finished = hash.err or status == 'complete' or status == 'failed' or not status and redis.call('EXISTS', key) == 0
  if finished or hash[2] and hash[2] ~= listener and held(id, hash[2], listener, ARGV[10]) then
    dropped = dropped + redis.call('LREM', KEYS[1], 1, id)
  elseif redis.call('LPOS', KEYS[1], id) then
    if hash[2] ~= listener or status ~= 'reserved' and status ~= 'started' then
      hash[3] = nextrun(key)
      redis.call('HSET', key, 'status', 'reserved', 'node', listener, 'updated', clock, 'reserved_at', clock)
    end
    if pid ~= '' then -- also one that is started: another version of its plugin may run it now
      redis.call('SADD', KEYS[2], listener .. ' ' .. pid .. ' ' .. id)
      redis.call('HSET', key, 'status', 'started', 'pid', pid, 'updated', clock, 'started_at', clock,
        'plugin', ARGV[8], 'digest', ARGV[9])
    end
    local parameters, size = payload(key, ARGV[5] .. id, math.min(most, room))
    if parameters then room = room - #parameters end
    out[#out + 1] = { id, hash[3] or '0', hash[4] or '', hash[5] or '', hash[6] or '', hash[7] or '', size, parameters }
  end
end
out[1] = { dropped, clock, '' }
return out

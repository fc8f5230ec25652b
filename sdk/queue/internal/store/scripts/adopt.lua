-- Repeats the reply of reserve for tasks that are in the listener's reserved list, but unknown to the listener because
-- that reply was lost. Starts the tasks if a process ID is given. The list decides who holds a task, even if the task's
-- hash disagrees because an error ended the reserve. Drops an entry whose task is missing, finished, or in another
-- listener's list.
-- KEYS    1 reserved of the listener
-- ARGV    1 clock override  2 queue  3 listener  4 process ID or ""
--         5 maximum bytes of one task's parameters  6 maximum bytes of all parameters  7 number of further values
--         8 the number of the release that serves, or ""  9 the number of arguments for runners, and these arguments
--         then the further values: field, value, ... for the plugin's version and what its manifest sets (only with a
--         process ID), then the IDs
-- RETURNS number of dropped entries, clock, "", number of tasks that wait again because this host lacks their release
--         or must not try it, 0, "", "", 0, then for each task what reserve.lua returns; without a process ID, a task that was started before
--         also has started_at
local queue, listener, pid = ARGV[2], ARGV[3], ARGV[4]
local bad = mistyped(KEYS[1], 'list', STARTED_TASKS_ .. queue, 'set', SCHEDULED_TASKS_ .. queue, 'zset')
if bad then return bad end

local clock = now(ARGV[1])
local most, room = tonumber(ARGV[5]), tonumber(ARGV[6])
local extra, serving, rest = tonumber(ARGV[7]), ARGV[8], 10 + ARGV[9]
local out, dropped, pick = { 0, clock, '', 0, 0, '', '', 0 }, 0

-- picker(): makes a function as in reserve.lua. Without a release, its second value is whether the task waits again.
local function picker() -- rare
  local choose = runners(serving, listener, 10, rest - 1, clock)
  return function(id, key, h)
    local number, one, waits = choose(id, h[25], h[26])
    if waits then
      redis.call('LREM', KEYS[1], 1, id)
      disown(queue, listener, id, pid)
      if not h[26] then redis.call('HSET', key, 'aside', clock) end
      back(queue, id, clock, 1, 'LPUSH', '', '')
      return nil, true
    end
    if number and not one then redis.call('HDEL', key, 'pinned') end
    redis.call('HDEL', key, 'aside')
    return one, false, number
  end
end

for i = rest + extra, #ARGV do
  local id = ARGV[i]
  local key = TASK_ .. id
  local max = math.min(most, room)
  local h, size = read(key, max, true)
  local status, node = h and h[2], h and redis.call('HGET', key, 'node')
  local finished = not h or status == 'complete' or status == 'failed' or not status and redis.call('EXISTS', key) == 0
  local one, waits, number
  if finished or node and node ~= listener and holding(queue, id, node, listener) then
    dropped = dropped + redis.call('LREM', KEYS[1], 1, id)
    disown(queue, listener, id, pid ~= '' and pid or string.match(listener, '_(%d+)$'))
  elseif redis.call('LPOS', KEYS[1], id) then
    if pid ~= '' and (rest > 10 or h[25] and serving ~= '' and h[25] ~= serving or h[26]) then
      pick = pick or picker()
      one, waits, number = pick(id, key, h)
    end
    if waits then
      out[4] = out[4] + 1
    else
      if node ~= listener or status ~= 'reserved' and status ~= 'started' then
        h[3] = count(key, 'run')
        redis.call('HSET', key, 'status', 'reserved', 'node', listener, 'updated', clock, 'reserved_at', clock)
      end
      if pid ~= '' then -- also if the task was started: another version of the plugin may run it now
        redis.call('HDEL', key, 'on_crash', 'max_crashes', 'dead', 'plugin', 'digest', 'version', 'release') -- of the previous holder
        redis.call('SADD', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
        redis.call('HSET', key, 'status', 'started', 'pid', pid, 'updated', clock, 'started_at', clock,
          unpack(ARGV, one and one.first or rest, one and one.last or rest + extra - 1))
      end
      local n = #out + 5
      room = room - take(out, id, h[3] or '0', h, size, max)
      if pid == '' and status == 'started' then -- started_at is a part of the claim
        out[#out + 1], out[#out + 2] = 'started_at', redis.call('HGET', key, 'started_at') or ''
        out[n] = out[n] + 2
      end
      if number then
        out[#out + 1], out[#out + 2] = not one and 'instead' or h[26] and 'delayed' or 'release', number
        out[n] = out[n] + 2
      end
    end
  end
end
out[1] = dropped
return out

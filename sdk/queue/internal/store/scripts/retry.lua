-- Retries a task on request. A scheduled task that waits for its next run, after one that did not finish it, becomes
-- pending at once; nothing else of it changes. Of a task that failed for good, counters and age start from zero. In a
-- long list of failed tasks, the task's old entry stays as a stale entry. The task's field "stale" counts these
-- entries, and purge.lua removes them.
-- KEYS    1 task hash
-- ARGV    1 clock override  2 queue  3 id  4 the state of the task, in the form that altered takes
-- RETURNS 'ok', 'gone' (no such task in this queue), 'changed' (the task has another state), 'dependency ID failed' or
--         'dependency ID gone' (the task cannot run, because dependency ID failed or is gone), or the task's status, if
--         that forbids a retry; the error UNIQUE if another task holds the task's uniqueness now
local queue, id = ARGV[2], ARGV[3]
local key = KEYS[1]
local bad = mistyped(FAILED_TASKS_ .. queue, 'list', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set', key, 'hash',
  EXPIRY_ .. queue, 'zset', STATS_ .. queue, 'hash', ATTEMPTS_ .. id, 'list', BLOCKED_ .. queue, 'zset')
if bad then return bad end

-- dependent(after): returns a function (clock) that blocks the task again, if the task is to wait for its dependencies;
-- otherwise nil, and the reply of the script if the task can never run. It checks up to 100 of the dependencies that
-- ended without being complete again, because some may have been retried, or deleted and enqueued anew.
local function dependent(after) -- rare
  local d = dependencies(after)
  if not d or d.state == 'released' then return nil end
  if decide(d) == 'fail' then
    local places, looked, culprit = redis.call('HGETALL', AFTER_ .. id), 0, '- failed'
    for i = 1, #places, 2 do
      local other, index, was = places[i], string.match(places[i + 1], '^(%d+) ?(%l*)$')
      if index and was ~= '' and was ~= 'complete' and looked < 100 then
        local state = endof(other)
        if state ~= was then
          counted(d, was, state)
          redis.call('HSET', AFTER_ .. id, other, state == '' and index or index .. ' ' .. state)
          if state == '' then
            redis.pcall('RPUSH', CHILDREN_ .. other, id)
            redis.call('HSET', TASK_ .. other, 'awaited', '1')
          end
        end
        looked = looked + 1
        if state ~= '' and state ~= 'complete' then culprit = other .. ' ' .. state end
      end
    end
    redis.call('HSET', key, 'after', noted(d))
    if decide(d) == 'fail' then return nil, 'dependency ' .. culprit end
  end
  return function(clock)
    redis.call('ZADD', BLOCKED_ .. queue, clock, id)
    resolve(queue, id, clock, d, '')
  end
end

if not exists(queue, id) then return 'gone' end
if altered(KEYS[1], ARGV[4]) then return 'changed' end
local h = redis.call('HMGET', key, 'status', 'error', 'priority', 'max_age', 'deadline', 'node', 'unique', 'unique_for',
  'dead_id', 'awaited', 'after', 'updated', 'run', 'stale', 'last_action', 'fair', 'lane', 'kept')
if h[1] == 'scheduled' and h[15] then
  bad = mistyped(SCHEDULED_TASKS_ .. queue, 'zset')
  if bad then return bad end
  if redis.call('ZREM', SCHEDULED_TASKS_ .. queue, id) == 1 then
    local clock = now(ARGV[1])
    redis.call('HSET', key, 'status', 'pending', 'eta', clock, 'updated', clock)
    push(queue, id, h[3], h[16], h[17], 'LPUSH')
    announce(CHANNEL_ .. queue)
    return 'ok'
  end
end
if h[1] ~= 'failed' then return h[1] or 'pending' end
local wait, refusal
if h[11] then wait, refusal = dependent(h[11]) end
if refusal then return refusal end
local other = h[7] and owner(queue, h[7], id, false)
if other then return redis.error_reply('UNIQUE task ' .. other .. ' holds the uniqueness of ' .. id .. ' by now') end
local clock = now(ARGV[1])
redis.call('ZREM', EXPIRY_ .. queue, id) -- a removal must come first: see renew.lua
if h[18] then uncount({ id .. ' ' .. h[18] }) end
if h[9] then inherit(id, h[9]) end -- its dead letter gets a copy of the parameters
if h[7] and not h[8] then redis.pcall('SET', UNIQUE_ .. queue .. '_' .. h[7], id, 'EX', UNIQUE_LIFE) end
if h[6] then record(id, moment(h[12], clock), 'failed', h[2] or '') end -- without a node, the task never ran
if redis.call('LLEN', FAILED_TASKS_ .. queue) <= SEARCHED then
  if h[14] then
    local stale = redis.call('LREM', FAILED_TASKS_ .. queue, 0, id) - 1
    if stale > 0 then count(STATS_ .. queue, 'stale:failed', -stale) end
    redis.call('HDEL', key, 'stale')
  else -- without stale entries the first match is the only one: the search can stop there
    redis.call('LREM', FAILED_TASKS_ .. queue, 1, id)
  end
else
  count(key, 'stale')
  count(STATS_ .. queue, 'stale:failed')
end
-- Version 0.1.0 wrote finished_at.
redis.call('HDEL', key, 'error', 'result', 'reason', 'node', 'pid', 'reserved_at', 'started_at', 'finished_at', 'cancel',
  'attempts', 'crashes', 'reschedules', 'rejects', 'rejected_by', 'settled', 'progress', 'message', 'expires', 'handled', 'dead_id', 'dead_error', 'eta',
  'on_crash', 'max_crashes', 'dead', 'plugin', 'digest', 'version', 'release', 'pinned', 'aside', 'kept')
redis.call('HSET', key, 'status', wait and 'scheduled' or 'pending', 'retried_at', clock, 'updated', clock,
  'last_error', h[2] or '')
if h[13] == PLAIN then redis.call('HSET', key, 'run', '0') end -- the task has more fields than a plain one now
local deadline = moment(h[5])
if deadline and tonumber(deadline) <= tonumber(clock) then
  redis.call('HDEL', key, 'deadline')
  deadline = nil
end
setexpiry(queue, id, clock, not wait and h[4], deadline)
if h[10] then reopened(id) end
if wait then
  wait(clock)
  return 'ok'
end
push(queue, id, h[3], h[16], h[17], 'LPUSH')
announce(CHANNEL_ .. queue)
return 'ok'

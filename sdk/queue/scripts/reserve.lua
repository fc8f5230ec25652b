-- Reserves tasks of one queue for a listener, and starts them at once when a process ID is given
-- (for slots that are free). Skips a paused queue. An ID whose task is missing, damaged, finished
-- or held already is dropped and counted.
-- KEYS    1 pending  2 reserved of the listener  3 started  4 paused queues  5 index  6 scheduled
--         7 nodes
-- ARGV    1 clock override  2 queue  3 listener  4 most tasks  5 process ID or ""
--         6 prefix of task hashes  7 prefix of bytes hashes  8 prefix of the queue's reserved lists
--         9 most bytes of parameters a task  10 most bytes of parameters together
--         11 plugin  12 digest of the plugin (both only with a process ID)
-- RETURNS {{dropped, clock, eta of the next scheduled task or ""}, {id, run, created, eta, attempts,
--         max_attempts, size of parameters, parameters or nil if too large}, ...}; the error LEASELOST
--         if the listener is not known (any more)
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'list', KEYS[3], 'set', KEYS[5], 'zset', KEYS[6], 'zset')
if bad then return bad end
-- A reserve that was long on its way must not hold tasks for a listener that has left meanwhile.
if not redis.call('ZSCORE', KEYS[7], ARGV[3]) then
  return redis.error_reply('LEASELOST listener ' .. ARGV[3] .. ' is not known (any more)')
end

local clock = now(ARGV[1])
local eta = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')[2] or ''
if redis.call('SISMEMBER', KEYS[4], ARGV[2]) == 1 then return { { 0, clock, eta } } end
local listener, pid = ARGV[3], ARGV[5]
local most, room = tonumber(ARGV[9]), tonumber(ARGV[10])

local out, dropped = { 0 }, 0
while #out <= tonumber(ARGV[4]) and dropped < 1000 do
  local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[2])
  if not id then break end
  local key = ARGV[6] .. id
  local hash = redis.pcall('HMGET', key, 'status', 'node', 'run', 'created', 'eta', 'attempts', 'max_attempts')
  local status = not hash.err and hash[1]
  local drop
  if hash.err or status == 'complete' or status == 'failed' then
    drop = true
  elseif status == 'reserved' or status == 'started' then
    drop = hash[2] and held(id, hash[2], listener, ARGV[8])
  elseif not status then
    drop = redis.call('EXISTS', key) == 0
  end
  if drop then
    redis.call('LREM', KEYS[2], 1, id)
    dropped = dropped + 1
  else
    local run = nextrun(key)
    if not hash[3] then -- enqueued by a client that keeps no index
      redis.call('ZADD', KEYS[5], 'NX', moment(hash[4], clock), id)
    end
    if pid == '' then
      redis.call('HSET', key, 'status', 'reserved', 'node', listener, 'updated', clock, 'reserved_at', clock)
    else
      redis.call('SADD', KEYS[3], listener .. ' ' .. pid .. ' ' .. id)
      redis.call('HSET', key, 'status', 'started', 'node', listener, 'pid', pid, 'updated', clock,
        'reserved_at', clock, 'started_at', clock, 'plugin', ARGV[11], 'digest', ARGV[12])
    end
    local parameters, size = payload(key, ARGV[7] .. id, math.min(most, room))
    if parameters then room = room - #parameters end
    out[#out + 1] = { id, run, hash[4] or '', hash[5] or '', hash[6] or '', hash[7] or '', size, parameters }
  end
end
out[1] = { dropped, clock, eta }
return out

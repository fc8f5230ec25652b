-- Gives up to 1,000 held tasks of one queue back to the front of the pending list; nothing is
-- counted. The newest come first, so that the oldest is at the very front in the end.
-- KEYS    1 reserved of the listener  2 started  3 pending
-- ARGV    1 clock override  2 listener  3 prefix of task hashes  4 channel
--         then for each task: id, run, process ID
-- RETURNS for each task 'ok', 'lost' or 'gone'
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'set', KEYS[3], 'list')
if bad then return bad end

local clock = now(ARGV[1])
local listener = ARGV[2]
local out, released = {}, false
for at = 5, #ARGV, 3 do
  local id, run, pid = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local key = ARGV[3] .. id
  local hold = holder(key, listener, run)
  if hold == 'gone' then
    redis.call('LREM', KEYS[1], 1, id)
    redis.call('SREM', KEYS[2], listener .. ' ' .. pid .. ' ' .. id)
    out[#out + 1] = 'gone'
  elseif hold ~= 'held' or redis.call('LREM', KEYS[1], 1, id) == 0 then
    out[#out + 1] = 'lost'
  else
    redis.call('SREM', KEYS[2], listener .. ' ' .. pid .. ' ' .. id)
    redis.call('HSET', key, 'status', 'pending', 'updated', clock)
    redis.call('HDEL', key, 'node', 'pid', 'result', 'error', 'reserved_at', 'started_at')
    redis.call('RPUSH', KEYS[3], id)
    released = true
    out[#out + 1] = 'ok'
  end
end
if released then announce(ARGV[4]) end
return out

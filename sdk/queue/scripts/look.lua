-- Counts the tasks of a queue by state, in O(listeners), not in the number of tasks.
-- KEYS    1 pending  2 scheduled  3 started  4 complete  5 failed  6 listeners  7 paused queues
--         8 nodes  9 stats
-- ARGV    1 clock override  2 queue  3 prefix of the queue's reserved lists  4 prefix of task hashes
-- RETURNS {scheduled, pending, reserved (not started), started, complete, failed, listeners,
--         paused, age of the oldest pending task in seconds or "", {counter, value, ...}}
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'zset', KEYS[3], 'set', KEYS[4], 'list', KEYS[5], 'list',
  KEYS[6], 'set', KEYS[7], 'set', KEYS[8], 'zset', KEYS[9], 'hash')
if bad then return bad end

local listeners = redis.call('SMEMBERS', KEYS[6])
local seen, held = {}, 0
local function count(listener)
  if seen[listener] then return end
  seen[listener] = true
  held = held + redis.call('LLEN', ARGV[3] .. listener)
end
for _, listener in ipairs(listeners) do count(listener) end
for _, listener in ipairs(redis.call('ZRANGE', KEYS[8], 0, -1)) do count(listener) end

local age = ''
local oldest = redis.call('LINDEX', KEYS[1], -1)
if oldest then
  local times = redis.pcall('HMGET', ARGV[4] .. oldest, 'created', 'eta')
  local created = not times.err and tonumber(times[1] or '')
  if created then
    -- A task that was scheduled waits since it was due, not since it was written.
    local since = math.max(created, tonumber(times[2] or '') or 0)
    age = string.format('%.6f', math.max(0, tonumber(now(ARGV[1])) - since))
  end
end
local started = redis.call('SCARD', KEYS[3])
return {
  redis.call('ZCARD', KEYS[2]), redis.call('LLEN', KEYS[1]), math.max(0, held - started), started,
  redis.call('LLEN', KEYS[4]), redis.call('LLEN', KEYS[5]), #listeners,
  redis.call('SISMEMBER', KEYS[7], ARGV[2]), age, redis.call('HGETALL', KEYS[9]),
}

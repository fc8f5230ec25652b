-- Pauses a queue, a key of its tasks, a plugin or the tenant, or ends a pause. The letter "p" in the field ".." of LIMITS
-- makes scripts look for pauses of accepting. A paused key is held until ENDLESS, also if the queue has as many holds as
-- handlers may make.
-- KEYS    1 paused
-- ARGV    1 clock override  2 taking or accepting  3 the queue, "key QUEUE KEY", "plugin NAME", or . for the tenant
--         4 JSON for PAUSES, or "" to end the pause  5 maximum number of pauses  6 the key, if 3 has one
-- RETURNS 'ok'; 'none' if there was no such pause to end; 'full' if there are too many, and nothing is changed. Ending
--         the pause of a key leaves its tasks to unhold.lua
local what, scope = ARGV[2], ARGV[3]
local queue = string.match(scope, '^key (%S+) ')
local held = queue and HELD_ .. queue
local bad = mistyped(KEYS[1], 'set', PAUSES, 'hash', LIMITS, 'hash') or held and mistyped(held, 'zset')
if bad then return bad end
local field, done = what .. ' ' .. scope, 'ok'
if ARGV[4] == '' then
  if redis.call('HDEL', PAUSES, field) + (what == 'taking' and redis.call('SREM', KEYS[1], scope) or 0) == 0 then done = 'none' end
else
  if redis.call('HLEN', PAUSES) >= tonumber(ARGV[5]) and redis.call('HEXISTS', PAUSES, field) == 0 then return 'full' end
  redis.call('SREM', KEYS[1], '') -- a removal must come first: see renew.lua
  redis.call('HSET', PAUSES, field, now(ARGV[1]) .. ' ' .. ARGV[4])
  if held then
    redis.call('ZADD', held, 'GT', ENDLESS, redis.sha1hex(ARGV[6]))
  elseif what == 'taking' then
    redis.call('SADD', KEYS[1], scope)
  end
end

local mark = string.gsub(redis.call('HGET', LIMITS, '..') or '', 'p', '')
for _, field in ipairs(redis.call('HKEYS', PAUSES)) do
  if string.sub(field, 1, 10) == 'accepting ' then
    mark = mark .. 'p'
    break
  end
end
if mark == '' then redis.call('HDEL', LIMITS, '..') else redis.call('HSET', LIMITS, '..', mark) end
return done

-- Makes, changes or deletes a subscription, if it is still as the caller has read it. Also changes the generation, from
-- which publishers see that the subscriptions have changed.
-- KEYS    1 subscriptions
-- ARGV    1 id  2 its text as it was read, or "" if there was none  3 its new text, or "" to delete it
--         4 maximum number of subscriptions  5 its queue if the queue has changed, or ""  6 its queue if a hold of the
--         queue is to end, because the webhook's URL has changed, or ""
-- RETURNS 'ok', also if the subscription has the new text already; 'changed' if it is not as the caller has read it;
--         'full' if there are too many subscriptions; the error QUOTA if the tenant may have no more; MANYQUEUES if the
--         queue is new and the tenant already has its maximum number of queues
local bad = mistyped(KEYS[1], 'hash', GENERATION, 'string', QUEUES, 'zset')
if bad then return bad end

local is = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if is == ARGV[3] then return 'ok' end
if is ~= ARGV[2] then return 'changed' end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  if is == '' and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 'full' end
  bad = is == '' and scarce('subscriptions', redis.call('HLEN', KEYS[1])) or ARGV[5] ~= '' and unlisted(ARGV[5])
  if bad then return bad end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  if ARGV[6] ~= '' then redis.pcall('HDEL', STATS_ .. ARGV[6], 'held') end
end
-- The new generation was never used before, even after a failover.
redis.call('SET', GENERATION, redis.sha1hex(now('') .. ARGV[1] .. ARGV[3]))
return 'ok'

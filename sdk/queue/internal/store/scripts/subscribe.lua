-- Makes, changes or deletes a subscription, if it is as the caller read it. Who publishes learns by the generation that the
-- subscriptions have changed.
-- KEYS    1 subscriptions
-- ARGV    1 id  2 its text as it was read, or "" if there was none  3 its new text, or "" to delete it  4 most subscriptions
--         5 its queue if it is another one, or ""  6 its queue if it is no longer held, because its webhook has another URL, or ""
-- RETURNS ok, also if it is already as it should be; changed (it is not as it was read); or full (there are too many); the error
--         MANYQUEUES if the queue is new and the tenant may have no more
local bad = mistyped(KEYS[1], 'hash', GENERATION, 'string', QUEUES, 'zset')
if bad then return bad end

local is = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if is == ARGV[3] then return 'ok' end
if is ~= ARGV[2] then return 'changed' end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  if is == '' and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 'full' end
  bad = ARGV[5] ~= '' and unlisted(ARGV[5])
  if bad then return bad end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  if ARGV[6] ~= '' then redis.pcall('HDEL', STATS_ .. ARGV[6], 'held') end
end
redis.call('SET', GENERATION, redis.sha1hex(now('') .. ARGV[1] .. ARGV[3])) -- which never comes again, also after a failover
return 'ok'

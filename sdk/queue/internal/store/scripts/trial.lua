-- Adds the counts of a host to those of a release that is on trial: the canary of its plugin, or a release that a push has
-- made to serve a short time ago. The counts of another release are forgotten.
-- KEYS    1 the plugin's trial
-- ARGV    1 clock  2 plugin  3 number of the release  4 seconds for which a release that serves is on trial
--         5 seconds for which the counts are kept  6 maximum number of fields  7... field, number to add, ...
-- RETURNS '' if the release is not on trial; otherwise its deaths as reclaim.lua writes them or "", and the fields and
--         values of the trial
local release = RELEASE_ .. ARGV[2]
local bad = mistyped(KEYS[1], 'hash', release, 'hash')
if bad then return bad end
local clock, number = now(ARGV[1]), ARGV[3]
local h = redis.call('HMGET', release, 'canary', 'serving', number .. ' at', number .. ' trial', number .. ' deaths')
local since = h[1] == number and h[3] or h[2] == number and h[4]
if not since or h[1] ~= number and tonumber(after(since, ARGV[4])) < tonumber(clock) then return '' end
if redis.call('HGET', KEYS[1], 'number') ~= number then
  redis.call('UNLINK', KEYS[1])
  redis.call('HSET', KEYS[1], 'number', number)
end
local room = ARGV[6] - redis.call('HLEN', KEYS[1])
for i = 7, #ARGV, 2 do
  local new = redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0
  if new then room = room - 1 end
  if room >= 0 or not new then count(KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('EXPIRE', KEYS[1], ARGV[5])
return { h[5] or '', redis.call('HGETALL', KEYS[1]) }

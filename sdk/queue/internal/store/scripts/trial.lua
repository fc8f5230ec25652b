-- Adds the counts of a host to those of a release that is on trial: the canary of its plugin, or the release that serves.
-- The counts of another release are forgotten.
-- KEYS    1 the plugin's trial
-- ARGV    1 plugin  2 number of the release  3 seconds for which the counts are kept  4 maximum number of fields
--         5 "PLUGIN DIGEST" of the release  6... field, number to add, ...
-- RETURNS '' if the release is on trial no longer; otherwise the value of the version's field in CRASHES or "", and the
--         fields and values of the trial
local release = RELEASE_ .. ARGV[1]
local bad = mistyped(KEYS[1], 'hash', release, 'hash')
if bad then return bad end
local number = ARGV[2]
if redis.call('HGET', release, 'canary') ~= number and redis.call('HGET', release, 'serving') ~= number then return '' end
if redis.call('HGET', KEYS[1], 'number') ~= number then
  redis.call('UNLINK', KEYS[1])
  redis.call('HSET', KEYS[1], 'number', number)
end
local room = ARGV[4] - redis.call('HLEN', KEYS[1])
for i = 6, #ARGV, 2 do
  local new = redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0
  if new then room = room - 1 end
  if room >= 0 or not new then count(KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
local crashes = redis.pcall('HGET', CRASHES, ARGV[5])
return { type(crashes) == 'string' and crashes or '', redis.call('HGETALL', KEYS[1]) }

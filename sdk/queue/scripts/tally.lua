-- Adds to the counts of the present minute, and to those of the plugins' versions in the present hour, and notes the names of
-- these. A hash that has as many fields as it may have takes no new ones: the totals come first, and so are always there. Of
-- names some are forgotten: those that are in use come again.
-- KEYS    1 queues
-- ARGV    1 clock override  2 seconds for which a minute is kept  3 the same of an hour  4 most fields of each
--         5 number of arguments for the minute  6 and for the hour; then these: field, what to add, ...; then "DIGEST PLUGIN", name, ...
-- RETURNS 1
local clock = tonumber(now(ARGV[1]))

local function add(key, life, first, last)
  local bad = mistyped(key, 'hash')
  if bad then return bad end
  local room = ARGV[4] - redis.call('HLEN', key)
  for i = first, last, 2 do
    local new = redis.call('HEXISTS', key, ARGV[i]) == 0
    if new then room = room - 1 end
    if room >= 0 or not new then count(key, ARGV[i], ARGV[i + 1]) end
  end
  redis.call('EXPIRE', key, life)
end

local last = 6 + ARGV[5]
local bad = add(MINUTE_ .. string.format('%d', clock / 60), ARGV[2], 7, last)
  or add(HOUR_ .. string.format('%d', clock / 3600), ARGV[3], last + 1, last + ARGV[6]) or mistyped(VERSIONS, 'hash')
if bad then return bad end
for i = last + ARGV[6] + 1, #ARGV, 2 do
  if redis.call('HSETNX', VERSIONS, ARGV[i], ARGV[i + 1]) == 1 and redis.call('HLEN', VERSIONS) > tonumber(ARGV[4]) then
    redis.call('HDEL', VERSIONS, unpack(redis.call('HKEYS', VERSIONS), 1, 100))
  end
end
return 1

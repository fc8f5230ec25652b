-- Adds to the counts of the current minute, to the usage of the current day, and to the counts of the plugins' versions
-- in the current hour. The hash of a minute or an hour has a maximum number of fields. When it is full, no new field is
-- added. The totals come first in the arguments, so they are always counted. The fuel is taken from the tenant's bucket.
-- KEYS    1 queues
-- ARGV    1 clock override  2 seconds for which a minute is kept  3 seconds for which an hour is kept
--         4 maximum number of fields of each hash  5 number of arguments for the minute  6 of those for the day
--         7 seconds for which a day is kept
--         then the arguments for the minute, for the day, and for the hour: field, number to add, ...
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

local last = 7 + ARGV[5]
local days = last + ARGV[6]
for i = last + 1, days, 2 do
  if ARGV[i] == 'fuel' then
    local n, step, _, full = fuelstate(clock)
    if n then redis.call('HSET', USED, 'fuel_rate', string.format('%.6f', full + ARGV[i + 1] * step)) end
  end
end
return add(MINUTE_ .. string.format('%d', clock / 60), ARGV[2], 8, last)
  or add(USAGE_ .. string.format('%d', clock / 86400), ARGV[7], last + 1, days)
  or add(HOUR_ .. string.format('%d', clock / 3600), ARGV[3], days + 1, #ARGV) or 1

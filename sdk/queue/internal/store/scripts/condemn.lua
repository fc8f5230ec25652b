-- Sets the end of a listener's lease to 0, which means that its tasks are being reclaimed: the listener can no longer
-- renew the lease or reserve. Begins with a removal, as renew.lua does.
-- KEYS    1 nodes
-- ARGV    1 clock override  2 listener
--         3 why: "" because the lease has ended; "own" because the listener itself leaves, even if its lease still
--         runs; "overlong" because the listener has an overlong lease (see Fleet.OverlongLeases) that it did not renew
--         for the length of the lease; with "overlong" also
--         4 the end of that lease  5 its length in seconds
-- RETURNS 'ok', or 'alive' if the lease still runs, or the overlong lease was renewed meanwhile
local bad = mistyped(KEYS[1], 'zset', PAUSED, 'set')
if bad then return bad end

redis.call('SREM', PAUSED, '')
local lease = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or '')
local overlong = ARGV[3] == 'overlong'
if overlong and lease ~= tonumber(ARGV[4]) then return 'alive' end
if not lease then return 'ok' end
local left = lease - tonumber(now(ARGV[1]))
if left > 0 and not (overlong and left > tonumber(ARGV[5])) and ARGV[3] ~= 'own' then return 'alive' end
redis.call('ZADD', KEYS[1], 0, ARGV[2])
return 'ok'

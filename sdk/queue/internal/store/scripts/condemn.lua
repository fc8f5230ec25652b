-- Begins to take all tasks from a listener whose lease is over: it can no longer renew the lease or reserve.
-- Begins with an empty removal, as renew does.
-- KEYS    1 nodes
-- ARGV    1 clock override  2 listener  3 "own" from the listener itself, which leaves: its lease may run; "overlong"
--         of an overlong lease (see Fleet.OverlongLeases) that has stood still for its length: 4 its end  5 its length in seconds
-- RETURNS 'ok', or 'alive' while its lease runs, or is another one than that overlong one by now
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

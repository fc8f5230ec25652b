-- Gives a fleet-wide duty back, or keeps it for longer, if it is still the caller's.
-- KEYS    1 duty
-- ARGV    1 listener  2 seconds from now to keep it for, 0 to give it back
-- RETURNS 1 if it was the caller's
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('EXPIRE', KEYS[1], ARGV[2])

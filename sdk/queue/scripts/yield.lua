-- Gives a fleet-wide duty back, if it is still the caller's.
-- KEYS    1 duty
-- ARGV    1 listener
-- RETURNS 1 if it was given back
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0

-- Gives a fleet-wide duty back, if it is still the caller's.
-- KEYS    1 duty
-- ARGV    1 listener
-- RETURNS 1 if it was the caller's, else 0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])

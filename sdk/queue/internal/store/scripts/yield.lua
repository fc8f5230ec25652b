-- Frees a fleet-wide duty if the caller still has it.
-- KEYS    1 duty
-- ARGV    1 listener
-- RETURNS 1 if the caller had it, else 0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])

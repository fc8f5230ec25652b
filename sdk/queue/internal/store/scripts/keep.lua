-- Extends a fleet-wide duty if the caller still has it.
-- KEYS    1 duty
-- ARGV    1 listener  2 milliseconds from now until the duty is free again
-- RETURNS 1 if the caller had it, else 0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local kept = entrust(KEYS[1], ARGV[1], ARGV[2])
return kept.err and kept or 1

-- Keeps a fleet-wide duty for longer, if it is still the caller's.
-- KEYS    1 duty
-- ARGV    1 listener  2 milliseconds from now after which it is nobody's again
-- RETURNS 1 if it was the caller's, else 0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local kept = entrust(KEYS[1], ARGV[1], ARGV[2])
return kept.err and kept or 1

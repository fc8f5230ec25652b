-- Takes a fleet-wide duty if it is free.
-- KEYS    1 duty
-- ARGV    1 listener  2 milliseconds from now until the duty is free again
-- RETURNS 1 if the caller has the duty now, else 0
local taken = duty(KEYS[1], ARGV[1], tonumber(ARGV[2]))
if taken and taken.err then return taken end
return taken and 1 or 0

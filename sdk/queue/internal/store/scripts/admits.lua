-- Tells whether enqueue.lua would refuse tasks now, so that large parameters are sent only if they are wanted.
-- KEYS    1 pending
-- ARGV    1 clock override  2 queue  3 bytes of all parameters, then the IDs
-- RETURNS 'ok', or the error QUEUEFULL, PAUSED or QUOTA
local queue, new = ARGV[2], 0
for i = 4, #ARGV do
  if redis.call('EXISTS', TASK_ .. ARGV[i], ONCE_ .. ARGV[i]) == 0 then new = new + 1 end
end
return limited({ { queue = queue, new = new } }, ARGV[3] / (#ARGV - 3), now(ARGV[1]), true) or 'ok'

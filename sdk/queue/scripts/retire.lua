-- Forgets a listener that has left: only when it is in no listener set and holds nothing.
-- KEYS    1 nodes  2 node hash, then for each queue it served: listeners, reserved of the listener
-- ARGV    1 listener
-- RETURNS 1 if it was forgotten, 0 if something of it is left
for i = 3, #KEYS, 2 do
  if redis.call('SISMEMBER', KEYS[i], ARGV[1]) == 1 or redis.call('LLEN', KEYS[i + 1]) > 0 then return 0 end
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1

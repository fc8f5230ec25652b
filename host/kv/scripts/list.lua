-- Reads keys in the order of their bytes.
-- ARGV    4 from and 5 to where, as ZRANGEBYLEX takes it  6 most keys
-- RETURNS {'ok', key, ...}
if sweep() then return { 'again' } end
counted() -- which mends the names
local keys = redis.call('ZRANGEBYLEX', NAMES, ARGV[4], ARGV[5], 'LIMIT', 0, ARGV[6])
table.insert(keys, 1, 'ok')
return keys

-- Counts a bucket.
-- RETURNS {'ok', bytes, number of values}
if sweep() then return { 'again' } end
local total, values = counted()
return { 'ok', digits(total), digits(values) }

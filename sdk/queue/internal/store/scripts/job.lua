-- Writes to a job, if the caller still has the duty of that job. A write that is repeated because its reply was lost
-- changes nothing.
-- KEYS    1 duty of the job
-- ARGV    1 listener  2 job  3 seconds for which the job is kept  4 what to do:
--         'forget' removes all tasks
--         'add' adds tasks: 5 number of tasks before these, 6... "ID CREATED" of each
--         'end' records the results of the next tasks: 5 number of results before these, 6... "END TEXT" of each
--         'become' sets fields: 5 the state, 6 the field more ("1"; "" leaves it), 7 the error ("" leaves it)
-- RETURNS 1, or 0 if the caller no longer has the duty, or the job is gone
local job, items, ends = JOB_ .. ARGV[2], JOB_ITEMS_ .. ARGV[2], JOB_ENDS_ .. ARGV[2]
local bad = mistyped(job, 'hash', items, 'list', ends, 'list')
if bad then return bad end
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('EXISTS', job) == 0 then return 0 end

local what, before = ARGV[4], tonumber(ARGV[5])
if what == 'forget' then
  redis.call('DEL', items)
  redis.call('HDEL', job, 'more')
elseif what == 'add' and redis.call('LLEN', items) == before then
  redis.call('RPUSH', items, unpack(ARGV, 6))
elseif what == 'end' and redis.call('LLEN', ends) == before then
  redis.call('RPUSH', ends, unpack(ARGV, 6))
  for i = 6, #ARGV do redis.call('HINCRBY', job, string.match(ARGV[i], '^%l+'), 1) end
elseif what == 'become' then
  redis.call('HSET', job, 'state', ARGV[5])
  if ARGV[6] ~= '' then redis.call('HSET', job, 'more', ARGV[6]) end
  if ARGV[7] ~= '' then redis.call('HSET', job, 'error', ARGV[7]) end
end
for _, key in ipairs({ job, items, ends }) do redis.call('EXPIRE', key, ARGV[3]) end
return 1

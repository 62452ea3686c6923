-- Records a heartbeat and returns the number of live processes; with hash tags also whether the
-- processes of the newest heartbeats have the same number of them (1) or not (0).
-- KEYS[1]: processes by time of their last heartbeat. ARGV: process, expiry in milliseconds, the number
-- of hash tags if there are some. The name of a process with hash tags ends with their number.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local count = redis.call('ZCARD', KEYS[1])
if not ARGV[3] then
  return count
end
local same = 1
-- An error if the user lacks the permission, which has no items.
for _, process in ipairs(redis.pcall('ZRANGE', KEYS[1], -16, -1)) do
  if not string.find(process, ':' .. ARGV[3] .. '$') then
    same = 0
  end
end
return { count, same }

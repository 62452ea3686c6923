-- Leaky bucket that refuses requests that would overflow: a hash with the level and the last leak time.
-- KEYS: the bucket. ARGV: capacity, units leaking per second, now in seconds.
local key = KEYS[1]
local capacity = tonumber(ARGV[1])
local rate = tonumber(ARGV[2])
local now = tonumber(ARGV[3])

local bucket = redis.call('HMGET', key, 'level', 'last_leak')
local level = tonumber(bucket[1]) or 0
local last = tonumber(bucket[2]) or now
level = math.max(0, level - math.max(0, now - last) * rate)

local allowed, retry = 0, 0
if level + 1 <= capacity then
  level = level + 1
  allowed = 1
else
  retry = math.ceil((level + 1 - capacity) / rate)
end
redis.call('HSET', key, 'level', level, 'last_leak', now)
redis.call('EXPIRE', key, math.ceil(capacity / rate))
return { allowed, math.floor(capacity - level), retry }

-- Leaky bucket that delays admitted requests: a hash with the queue length and the last leak time.
-- KEYS: the queue. ARGV: capacity, units leaving per second, now in seconds.
local key = KEYS[1]
local capacity = tonumber(ARGV[1])
local rate = tonumber(ARGV[2])
local now = tonumber(ARGV[3])

local queue = redis.call('HMGET', key, 'queued', 'last_leak')
local queued = tonumber(queue[1]) or 0
local last = tonumber(queue[2]) or now
queued = math.max(0, queued - math.max(0, now - last) * rate)

if queued + 1 > capacity then
  return { 0, 0, math.ceil((queued + 1 - capacity) / rate * 1000) }
end
local delay = math.ceil(queued / rate * 1000)
redis.call('HSET', key, 'queued', queued + 1, 'last_leak', now)
redis.call('EXPIRE', key, math.ceil(capacity / rate))
return { 1, math.floor(capacity - queued - 1), delay }

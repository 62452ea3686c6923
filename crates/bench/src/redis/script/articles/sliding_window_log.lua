-- Sliding window log: a sorted set with a unique member per request.
-- KEYS: the log. ARGV: limit, window in ms, now in ms, the member.
local key = KEYS[1]
local limit = tonumber(ARGV[1])
local window = tonumber(ARGV[2])
local now = tonumber(ARGV[3])

redis.call('ZREMRANGEBYSCORE', key, 0, now - window)
local count = redis.call('ZCARD', key)
if count >= limit then
  local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return { 0, 0, tonumber(oldest[2]) + window - now }
end
redis.call('ZADD', key, now, ARGV[4])
redis.call('PEXPIRE', key, window)
return { 1, limit - count - 1, 0 }

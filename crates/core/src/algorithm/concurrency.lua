-- Concurrency limits: units in flight, held by owners until they are released or lapse. The twin of
-- concurrency.rs.
-- Stored: a hash with what each owner holds (units, end), and under the empty name a header: the
-- kind, the newest end, the units of all, a time before which none ends, the expiry in milliseconds.
-- And a sorted set of the owners by their ends.
-- Own field of the argument: the owner. An undo restores what the owner held: the cost until the time.
-- Returned: the kind, the newest end, the live units, the owner's units and end, and the end after
-- which the request fits if it does not; for a refund the newest end that is left.

--@prelude
local RENEW = 10
local ends, owner -- the key of the sorted set
local newest, total, live -- the newest end; the units of all holds, and of live ones
local held, held_until -- by the owner, if live
local soonest, lives -- no hold ends before; the expiry in milliseconds
local lapsed -- the owners of expired holds, if there may be any
local fresh -- whether nothing stored counts
local frees -- the end after which the request fits, or the newest that is left
local function decimal(number)
  return string.format('%.0f', number)
end
-- Calls a function with each 256 of a list: Lua's stack is limited.
local function by_256(list, use)
  for from = 1, #list, 256 do
    use(_G.unpack(list, from, from + 255 < #list and from + 255 or #list))
  end
end

--@argument
owner, offset = unpack('>Bc0', arguments, offset)

--@keys
ends, extra = KEYS[extra], extra + 1

--@reset
call('UNLINK', ends)

--@advance
newest, total, soonest, lives, held, held_until = 0, 0, 0, 0, 0, 0
lapsed, frees = false, 0
local stored = reply_to('HMGET', key, '', owner) or {}
local header, own, is = stored[1], stored[2]
if header and #header == 25 then
  is, newest, total, soonest, lives = unpack('>BI7I4I7I6', header)
end
fresh = is ~= 7 or newest > MAX + period or total >= 2147483648
if not fresh then
  if own and #own == 11 then
    held, held_until = unpack('>I4I7', own)
  end
  if held > total or held_until > newest then
    held, held_until = 0, 0
  end
  if verb ~= UNDO then
    local back = newest - period - t
    if back > 0 then
      now = newest - period
    end
    fresh = back > period or newest <= now
  end
end
live = total
if not fresh and verb ~= UNDO and soonest <= now then
  lapsed = reply_to('ZRANGE', ends, '-inf', decimal(now), 'BYSCORE') or {}
  by_256(lapsed, function(...)
    for _, hold in ipairs(call('HMGET', key, ...)) do
      live = live - (hold and unpack('>I4', hold) or 0)
    end
  end)
  if held_until <= now then
    held, held_until = 0, 0
  end
  -- If one of the keys was evicted, the counter is.
  fresh = live < held or reply_to('ZCARD', ends) ~= call('HLEN', key) - 1
end
if fresh then
  raw, now, live, held, held_until = '\0', t, 0, 0, 0
else
  local others = live - held
  local wanted = verb == TAKE and 1 or verb <= CHECK and cost or 0
  if wanted <= limit and others + wanted > limit and wanted > 0 then
    -- Walks over the holds in the order of their ends.
    local from, some, last = 0, 4
    repeat
      local after = '(' .. decimal(now)
      local owners = reply_to('ZRANGE', ends, after, '+inf', 'BYSCORE', 'LIMIT', from, some) or {}
      from, last, some = from + some, #owners < some, 256
      for k, hold in ipairs(owners[1] and call('HMGET', key, _G.unpack(owners)) or {}) do
        if hold and owners[k] ~= owner and others + wanted > limit then
          local units
          units, frees = unpack('>I4I7', hold)
          others = others - units
        end
      end
    until last or others + wanted <= limit
  elseif verb >= REFUND and held > 0 then
    frees = newest
    if held_until == newest and cost >= held or verb == UNDO then
      local last = reply_to('ZRANGE', ends, '-2', '-2', 'WITHSCORES') or {}
      frees = tonumber(last[2]) or 0
    end
  end
  raw = pack('>BI7I4I4I7I7', 7, newest, live, held, held_until, frees)
end

--@renewed
if verb == RENEW and held == 0 then
  fit = false
end

--@fits
if live - held + cost > limit then
  fit = false
end

--@available
available = limit - live + held

--@keep
several[i - first + 1] = {
  taken, kind, verb, cost, limit, period, raw, now,
  ends, owner, newest, total, live, held, held_until, soonest, lives, lapsed, fresh, frees,
}

--@recall
ends, owner, newest, total, live = seen[9], seen[10], seen[11], seen[12], seen[13]
held, held_until, soonest, lives = seen[14], seen[15], seen[16], seen[17]
lapsed, fresh, frees = seen[18], seen[19], seen[20]

--@take
local units = verb == RENEW and held or grant
live = live - held + units
newest = now + period
held, held_until = units, newest
if fresh then
  soonest = newest
end

--@refund
if verb == UNDO then
  unchanged = held == cost and (held == 0 or held_until == taken)
  live = live - held + cost
  if held > 0 and held_until == newest then
    newest = frees
  end
  held, held_until = cost, taken
  if held > 0 then
    newest = newest > taken and newest or taken
    soonest = soonest < taken and not fresh and soonest or taken
  end
else
  unchanged = held == 0
  local back = cost < held and cost or held
  live, held = live - back, held - back
  if held == 0 then
    newest = frees
  end
end
new = live == 0
if new and not unchanged then
  call('UNLINK', ends)
end

--@pack
if fresh then
  call('UNLINK', key, ends)
elseif lapsed and lapsed[1] then
  by_256(lapsed, function(...)
    call('HDEL', key, ...)
  end)
  call('ZREMRANGEBYSCORE', ends, '-inf', decimal(now))
end
if held > 0 then
  if not reply_to('ZADD', ends, decimal(held_until), owner) then
    -- Of another type.
    call('UNLINK', ends)
    call('ZADD', ends, decimal(held_until), owner)
  end
else
  call('HDEL', key, owner)
  reply_to('ZREM', ends, owner)
end
if lapsed then
  local first_end = reply_to('ZRANGE', ends, '0', '0', 'WITHSCORES') or {}
  soonest = tonumber(first_end[2]) or newest
end
local stale = lives * 1000 < newest or lives * 1000 > newest + period
if stale then
  lives = math.floor((newest + period) / 1000)
end
local header = pack('>BI7I4I7I6', 7, newest, live, soonest, lives)
if held > 0 then
  call('HSET', key, '', header, owner, pack('>I4I7', held, held_until))
else
  call('HSET', key, '', header)
end
if supplied and fresh then
  call('PEXPIRE', key, '86400000')
  call('PEXPIRE', ends, '86400000')
elseif not supplied and (stale or fresh) then
  call('PEXPIREAT', key, decimal(lives))
  call('PEXPIREAT', ends, decimal(lives))
end
unchanged = true

-- Reservations: what a reserve took is remembered under an id, in a key of its own, until it is
-- settled, for an hour at most.
-- Stored: the time of the take, the units, the weight of the member, the member.
-- Returned before the state: \0 if there is none, or \1 and these without the member.

--@prelude
local RESERVE, SETTLE = 11, 12
local HOUR = 3600000000
local known = {} -- what is returned of each limit's reservation
local reserved = {} -- the key of each limit's reservation, if it is to be written or deleted

--@drained
-- The time that units of a bucket take to drain, saturated.
local function drained(units)
  if units * period / limit >= MAX + MAX / 2 then
    return MAX, 0
  end
  local us, part = mul_div(units, period, limit)
  if us >= MAX then
    return MAX, 0
  end
  return us, part
end

--@reserved
if verb >= RESERVE then
  local id, time, units = KEYS[extra]
  extra = extra + 1
  local stored = reply_to('GET', id)
  if stored and #stored >= 13 then
    time, units = unpack('>I7I4', stored)
  end
  local live = time and t < time + HOUR
  known[i] = live and '\1' .. string.sub(stored, 1, 13) or '\0'
  if verb == RESERVE then
    verb = (live or cost == 0) and PEEK or CHECK
    if live then
      cost = 0
    elseif cost > 0 then
      reserved[i] = id
    end
  elseif live then
    reserved[i] = id
    taken = time
    verb = cost > units and CHARGE or cost < units and UNDO or PEEK
    cost = math.abs(cost - units)
    --@settled
  else
    verb, cost = PEEK, 0
  end
end

--@remember
local id = reserved[j]
if id and verb == CHECK then
  local by = pack('>I2', 1)
  --@reserved_by
  local until_ms = string.format('%d', math.floor((now + HOUR + 999) / 1000))
  call('SET', id, pack('>I7I4', now, cost) .. by, supplied and 'PX' or 'PXAT', supplied and '86400000' or until_ms)
elseif id then
  call('DEL', id)
end

--@known
if not found then
  raw = (known[1] or '') .. raw
else
  for k, reservation in pairs(known) do
    found[k] = reservation .. found[k]
  end
end

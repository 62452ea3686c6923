-- The buckets: a level that drains at limit/period. The twin of bucket.rs.
-- Stored: the kind, the time of the last change, the microseconds that the level takes to drain, the
-- fraction of one in parts of 1/limit, that limit, the expiry in milliseconds.
-- Own fields of the argument: the drain times of the capacity and of the cost.

--@prelude
local us, part -- the level
local full_us, full_part, cost_us, cost_part
local lives -- the expiry in milliseconds

--@argument
full_us, full_part, cost_us, cost_part, offset = unpack('>I7I4I7I4', arguments, offset)

--@advance
  --@stored
local is, changed, under
if raw and #raw == 29 then
  is, changed, us, part, under, lives = unpack('>BI7I7I4I4I6', raw)
end
if is ~= 3 or changed > MAX or us > MAX or part >= under then
  raw, changed, us, part, under, lives = '\0', t, 0, 0, limit, 0
end
  --@drain

--@drain
if t < changed then
  if changed - t <= full_us + (full_part > 0 and 1 or 0) then
    now = changed
  else
    changed, us, part = t, 0, 0
  end
end
if under ~= limit then
  -- Converts the used units, rounded up, to another limit: adds what a whole unit lacks.
  local _, over = mul_div(us, under, period)
  local lacks = (period - (over + part) % period) % period
  local whole, rest = mul_div(us, under, limit)
  rest = rest + part + lacks
  us, part = whole + floor(rest / limit), rest % limit
  if us >= MAX then
    us, part = MAX, 0
  end
end
us = us - (now - changed)
if us < 0 then
  us, part = 0, 0
end

--@fits
local then_us, then_part = us + cost_us, part + cost_part
if then_part >= limit then
  then_us, then_part = then_us + 1, then_part - limit
end
if then_us > full_us or then_us == full_us and then_part > full_part then
  fit = false
end

--@tail
-- Give or take a microsecond: expected ends are rounded.
local ends = now + us + (part > 0 and 1 or 0)
if ends < taken - 1 or ends > taken + 1 then
  fit = false
end

--@available
available = 0
if us < full_us or us == full_us and part < full_part then
  local left_us, left_part = full_us - us, full_part - part
  if left_part < 0 then
    left_us, left_part = left_us - 1, left_part + limit
  end
  local units, rest = mul_div(left_us, limit, period)
  available = units + floor((rest + left_part) / period)
end

--@keep
several[i - first + 1] = {
  taken, kind, verb, cost, limit, period, raw, now,
  us, part, full_us, full_part, cost_us, cost_part, lives,
}

--@recall
us, part, full_us, full_part = seen[9], seen[10], seen[11], seen[12]
cost_us, cost_part, lives = seen[13], seen[14], seen[15]

--@take
if grant ~= cost then
  local grant_us, grant_part = mul_div(grant, period, limit)
  us, part = us + grant_us, part + grant_part
else
  us, part = us + cost_us, part + cost_part
end
if part >= limit then
  us, part = us + 1, part - limit
end
if us >= MAX then
  us, part = MAX, 0
end

--@refund
local back_us = cost_us
if verb == UNDO then
  -- A part has drained since; the rest is still in the level.
  back_us = now < taken and -1 or cost_us - (now - taken)
end
unchanged = back_us < 0 or back_us == 0 and cost_part == 0 or us == 0 and part == 0
us, part = us - back_us, part - cost_part
if part < 0 then
  us, part = us - 1, part + limit
end
new = us < 0 or us == 0 and part == 0

--@pack
local empty = now + us + (part > 0 and 1 or 0)
  --@lives
value = pack('>BI7I7I4I4I6', 3, now, us, part, limit, lives)

--@lives
local latest = floor((empty + full_us + (full_part > 0 and 1 or 0)) / 1000)
if lives * 1000 < empty or lives > latest then
  lives = floor((empty + 999) / 1000)
  if lives < latest then
    lives = latest
  end
  expires = lives
end

--@settled
cost_us, cost_part = drained(cost)

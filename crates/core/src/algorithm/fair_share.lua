-- Fair shares: a bucket whose members divide its rate by weight. The twin of fair_share.rs.
-- Stored: the root, which is a bucket's state, and the start and length of the epoch (0: none), the
-- number of its members and the sum of their weights, the same of the epoch before, whether the epoch
-- is odd. And a hash of members for even epochs and one for odd ones: level, its fraction, the time it
-- is as of, weight.
-- Own fields of the argument: those of a bucket, the capacity, a member's least units, their drain
-- time for the member's weight, the weight, whether the member always has a place, the member.
-- Returned: the root, whether the member is in this epoch (1), the one before (2) or neither (0), and
-- what is stored of it.

--@prelude
  --@bucket prelude
local even, odd -- the keys of the members
local capacity, least_units, least_us, least_part, weight, named, member
local span -- of a full drain
local start, length, parity -- of the epoch
local members, weights, earlier, earlier_weights -- their numbers and the sums of their weights
local turn -- 1: the members of this epoch became those of the one before; 2: none is left
local place -- of the member: 1 in this epoch, 2 in the one before, 0 in neither
local own_us, own_part, own_time, own_weight -- of the member
local active, most_us, most_part -- the sum of all weights; the member's share
local saved, dropped -- the keys from and to which the member's entry moves
-- What is stored of the member.
local function entry_in(hash)
  local found = reply_to('HMGET', hash, member)
  if not found then
    call('UNLINK', hash)
    return nil
  end
  return found[1]
end
-- An epoch: as many full drains as the weights need for their least units, within a day.
local function epoch_length(sum)
  local drains, most = floor(least_units * sum / capacity), floor(86400000000 / span)
  drains = drains < most and drains or most
  return drains > 1 and span * drains or span
end

--@argument
  --@bucket argument
capacity, least_units, least_us, least_part, weight, named, member, offset
  = unpack('>I4I4I7I4I2BBc0', arguments, offset)

--@keys
even, odd, extra = KEYS[extra], KEYS[extra + 1], extra + 2

--@reset
call('UNLINK', even, odd)

--@settled
  --@bucket settled
weight, member = unpack('>I2', stored, 12), string.sub(stored, 14)
least_us, least_part = drained(least_units * weight < capacity and least_units * weight or capacity)

--@reserved_by
by = pack('>I2', weight) .. member

--@advance
  --@stored
local is, changed, under
length, start, members, weights, earlier, earlier_weights = 0, 0, 0, 0, 0, 0
if raw and #raw == 60 then
  is, changed, us, part, under, lives, start, length, members, weights, earlier, earlier_weights, parity
    = unpack('>BI7I7I4I4I6I7I7I4I4I4I4B', raw)
end
if is ~= 6 or changed > MAX or us > MAX or part >= under
  or start > MAX or length > MAX or weights >= 2147483648 or earlier_weights >= 2147483648
  or members > weights or earlier > earlier_weights
then
  raw, changed, us, part, under, lives, length = '\0', t, 0, 0, limit, 0, 0
end
span = full_us + (full_part > 0 and 1 or 0)
turn = (changed - t > span or under ~= limit) and 2 or 0
  --@bucket drain
if length > 0 and turn == 0 and now >= start + length then
  start, length, turn = start + length, epoch_length(weights), members > 0 and 1 or 2
  members, weights, earlier, earlier_weights, parity = 0, 0, members, weights, 1 - parity
end
if turn == 2 or length == 0 or turn == 1 and now >= start + length then
  turn, length, members, weights, earlier, earlier_weights, parity = 2, 0, 0, 0, 0, 0, 0
end
place, own_us, own_part, own_time, own_weight = 0, 0, 0, now, 0
local entry
if members > 0 then
  entry, place = entry_in(parity == 0 and even or odd), 1
end
if not entry and earlier > 0 then
  entry, place = entry_in(parity == 0 and odd or even), 2
end
if entry and #entry == 20 then
  own_us, own_part, own_time, own_weight = unpack('>I7I4I7I2', entry)
end
if own_weight == 0 or own_weight > 1000 or own_weight > (place == 1 and weights or earlier_weights)
  or own_us > MAX or own_part >= limit or own_time > now
then
  place, own_us, own_part, own_time, own_weight, entry = 0, 0, 0, now, 0, ''
end
if raw ~= '\0' then
  -- As it is stored, before the turn.
  raw = raw .. pack('>B', place > 0 and place - turn or 0) .. entry
end
active = weights + earlier_weights - own_weight + weight
if place > 0 then
  local drained = mul_div(now - own_time, weight, active)
  own_us = own_us - drained
  if own_us < 0 or own_us == 0 and own_part == 0 then
    own_us, own_part, own_time = 0, 0, now
  else
    -- Rounded up: what was too short for a microsecond is not lost.
    local elapsed, rest = mul_div(drained, active, weight)
    own_time = own_time + elapsed + (rest > 0 and 1 or 0)
  end
end
most_us, most_part = mul_div(full_us, weight, active), 0
if most_us <= least_us then
  most_us, most_part = least_us, least_part
end

--@available
  --@bucket available
local reserve = floor(capacity / 4)
local beyond = available > reserve and available - reserve or 0
if named == 0 and place ~= 1 and members >= 10000 then
  available = beyond
elseif active ~= weight then
  local leave, own = 0, 0
  if most_us > 0 then
    leave = mul_div(reserve, own_us, most_us)
  end
  local left_us, left_part = most_us - own_us, most_part - own_part
  if left_part < 0 then
    left_us, left_part = left_us - 1, left_part + limit
  end
  if left_us >= 0 then
    local units, rest = mul_div(left_us, limit, period)
    own = units + floor((rest + left_part) / period)
  end
  leave = available - leave
  own = own < leave and own or leave
  available = own > beyond and own or beyond
end

--@fits
local available
  --@available
if cost > available then
  fit = false
end

--@keep
several[i - first + 1] = {
  taken, kind, verb, cost, limit, period, raw, now,
  us, part, full_us, full_part, cost_us, cost_part, lives,
  even, odd, capacity, least_units, weight, named, member, span, start, length, parity,
  members, weights, earlier, earlier_weights, turn, place, own_us, own_part, own_time, own_weight,
  active, most_us, most_part,
}

--@recall
  --@bucket recall
even, odd, capacity, least_units = seen[16], seen[17], seen[18], seen[19]
weight, named, member, span = seen[20], seen[21], seen[22], seen[23]
start, length, parity, members, weights = seen[24], seen[25], seen[26], seen[27], seen[28]
earlier, earlier_weights, turn, place = seen[29], seen[30], seen[31], seen[32]
own_us, own_part, own_time, own_weight = seen[33], seen[34], seen[35], seen[36]
active, most_us, most_part = seen[37], seen[38], seen[39]

--@take
  --@bucket take
saved, dropped = nil, nil
if named == 1 or place == 1 or members < 10000 then
  local then_us, then_part = cost_us, cost_part
  if grant >= capacity then
    then_us, then_part = full_us, full_part
  elseif grant ~= cost then
    then_us, then_part = mul_div(grant, period, limit)
  end
  then_us, then_part = own_us + then_us, own_part + then_part
  if then_part >= limit then
    then_us, then_part = then_us + 1, then_part - limit
  end
  if then_us > most_us or then_us == most_us and then_part > most_part then
    then_us, then_part = most_us, most_part
  end
  if then_us > own_us or then_us == own_us and then_part > own_part then
    own_us, own_part = then_us, then_part
  end
  if length == 0 then
    start, length = now, span
  end
  saved = parity == 0 and even or odd
  if place == 1 then
    weights = weights - own_weight
  else
    members = members + 1
  end
  if place == 2 then
    earlier, earlier_weights = earlier - 1, earlier_weights - own_weight
    dropped = parity == 0 and odd or even
  end
  weights, own_weight = weights + weight, weight
end

--@refund
local back_us, own_back_us, elapsed = cost_us, cost_us, 0
if verb == UNDO then
  -- A part has drained since; the rest is still in the level.
  elapsed = now - taken
  back_us, own_back_us = cost_us - elapsed, cost_us - mul_div(elapsed > 0 and elapsed or 0, weight, active)
end
saved, dropped = nil, nil
-- Without members the root is always written again: the reference model does so.
unchanged = elapsed < 0 or place == 0 and members + earlier > 0
  and (back_us < 0 or back_us == 0 and cost_part == 0 or us == 0 and part == 0)
if not unchanged then
  if back_us >= 0 then
    us, part = us - back_us, part - cost_part
    if part < 0 then
      us, part = us - 1, part + limit
    end
    if us < 0 then
      us, part = 0, 0
    end
  end
  if place > 0 and own_back_us >= 0 then
    own_us, own_part = own_us - own_back_us, own_part - cost_part
    if own_part < 0 then
      own_us, own_part = own_us - 1, own_part + limit
    end
  end
  local hash = parity == (place == 1 and 0 or 1) and even or odd
  if place > 0 and (own_us > 0 or own_us == 0 and own_part > 0) then
    saved = hash
  elseif place > 0 then
    dropped = hash
    if place == 1 then
      members, weights = members - 1, weights - own_weight
    else
      earlier, earlier_weights = earlier - 1, earlier_weights - own_weight
    end
    if members + earlier == 0 then
      length, turn = 0, 2
    end
  end
  new = us == 0 and part == 0 and length == 0
  if new then
    call('UNLINK', even, odd)
  end
end

--@pack
local empty = now + us + (part > 0 and 1 or 0)
if length > 0 then
  local forgotten = start + length + (members > 0 and epoch_length(weights) or 0)
  empty = empty > forgotten and empty or forgotten
end
  --@bucket lives
if turn == 2 then
  call('UNLINK', even, odd)
elseif turn == 1 then
  call('UNLINK', parity == 0 and even or odd)
end
if saved then
  call('HSET', saved, member, pack('>I7I4I7I2', own_us, own_part, own_time, own_weight))
end
if dropped and turn < 2 then
  call('HDEL', dropped, member)
end
if expires and not supplied then
  call('PEXPIREAT', even, string.format('%d', lives))
  call('PEXPIREAT', odd, string.format('%d', lives))
elseif saved and place ~= 1 and call('HLEN', saved) == 1 then
  call(supplied and 'PEXPIRE' or 'PEXPIREAT', saved, supplied and '86400000' or string.format('%d', lives))
end
value = pack('>BI7I7I4I4I6I7I7I4I4I4I4B', 6, now, us, part, limit, lives,
  start, length, members, weights, earlier, earlier_weights, parity)

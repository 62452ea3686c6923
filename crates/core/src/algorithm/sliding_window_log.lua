-- Sliding window log: every instant of the last period with its units. The twin of
-- sliding_window_log.rs and ring.rs.
-- An entry is a time and the running sum up to it, each cut to its lowest bytes. Stored: a header
-- of 33 bytes; a margin of 120 with an entry that is gone, for its sum, then the oldest entries
-- and the latest; a ring with those between them, if the margin alone is too small. The newest
-- entry is in the header. So most decisions read and write one short text, whatever the limit.
-- The header: the kind and how entries are written, how many entries of the margin are gone, how
-- many it has, the newest time, its sum, how many of the margin's entries come before the ring's
-- (more than it has: there is nothing in the ring), the millisecond it expires at; of the ring,
-- how many entries it could hold, where its oldest is, how many it has.
-- Answered: the kind, the newest time, the units that count. If they are too many, the kind is 5
-- and the time of the entry whose end makes room follows. After a refund or an undo, what is then.

--@prelude
local sub = string.sub
local used -- the units that count
-- How entries are written: nearly always like this, and numbers are slow to become text.
local shaped, form, onward, header, width = 4, '>I4I2', '>I2I4I2', '>BBI7I7c0I4I2', 6
local times, sums, sum_bytes, half = 4294967296, 65536, 2, 9
local skip, size, split -- of the margin's entries: how many are gone, all, those before the ring's
local newest, total -- its time, and the running sum of all
local before -- the running sum up to what is gone
local lives -- the millisecond it expires at
local text -- header and margin
local room, head, count -- of the ring, if it was looked at
local pushed -- when the newest entry so far was, if another comes after it
local moved -- all entries but the newest, if not only those at the ends have changed
local read, search -- made when they are needed, which is seldom

--@shape
local time_bytes = 4 + math.floor(shaped / 16) % 4
sum_bytes = shaped < 64 and 2 or shaped < 128 and 3 or 7
width = time_bytes + sum_bytes
form = 'I' .. time_bytes .. 'I' .. sum_bytes
form, onward, header = '>' .. form, '>I' .. sum_bytes .. form, '>BBI7I7c0' .. form
times, sums = 256 ^ time_bytes, sum_bytes == 7 and WIDE or 256 ^ sum_bytes
half = math.floor((math.floor(120 / width) - 1) / 2)

--@ring
room, head, count = unpack('>I3I3I3', text, 25)
if count > room or head > room or room > 131072 then
  room, head, count = 0, 0, 0
end

--@read
-- Entries from a place in the ring on, round its end if need be; missing bytes read as zeros.
read = read or function(from, entries)
  if from + entries > room then
    return read(from, room - from) .. read(0, from + entries - room)
  end
  local text = ''
  if entries > 0 then
    text = call('GETRANGE', key, 153 + from * width, 152 + (from + entries) * width)
  end
  if #text < entries * width then
    text = text .. string.rep('\0', entries * width - #text)
  end
  return text
end

--@advance
raw = pcall('GETRANGE', key, '0', '152')
used = 0
local is
if raw and #raw > 33 then
  is, skip, size, newest, total, split, lives = unpack('>BBBI7I7BI6', raw)
  if t < newest and newest - t <= period then
    now = newest
  end
end
local edge = now - period
local fresh = period < 4294967296 and 4 or period < 1099511627776 and 20 or 36
local sound = (is == fresh or is == fresh + 64 or is == fresh + 128)
  and edge < newest and newest <= now
if not sound then
  is = fresh
end
if is ~= shaped then
  shaped = is
  --@shape
end
if sound and total < sums and 0 < skip and skip <= size and skip <= split
  and size * width <= #raw - 33
then
  text, count = raw, nil
  local age = newest - edge -- relative to the newest; what is as old as that is gone
  repeat
    -- Drops what no longer counts: usually one entry of the margin.
    local at, stop = 34 + skip * width, split < size and split or size
    if skip < stop then
      local cut, sum
      before, cut, sum, at = unpack(onward, text, at - sum_bytes)
      while (newest - cut) % times >= age do
        skip, before = skip + 1, sum
        if skip == stop then
          break
        end
        cut, sum, at = unpack(form, text, at)
      end
    else
      local _
      _, before = unpack(form, text, at - width)
    end
    local again = skip == split
    if again then
      -- The ring's oldest come next: into the margin.
      --@ring
      --@read
      local some = count < half and count or half
      local entries = read(head, some)
      if count > some then
        local cut, sum = unpack(form, entries, (some - 1) * width + 1)
        if (newest - cut) % times >= age then
          -- Those are gone as well. By halves: the first of the others that is not.
          local low, high = some, count
          before = sum
          while low < high do
            local at = math.floor((low + high) / 2)
            cut, sum = unpack(form, read((head + at) % room, 1))
            if (newest - cut) % times >= age then
              low, before = at + 1, sum
            else
              high = at
            end
          end
          head, count = (head + low) % room, count - low
          some = count < half and count or half
          entries = read(head, some)
        end
      end
      if some > 0 then
        head, count = (head + some) % room, count - some
      end
      entries = pack(form, 0, before) .. entries .. sub(text, 34 + split * width, 33 + size * width)
      skip, size, split = 1, 1 + some + size - split, count > 0 and 1 + some or 255
      text = sub(text, 1, 17) .. pack('>BI6I3I3I3', split, lives, room, head, count) .. entries
    end
  until not again
  used = (total - before) % sums
  local frees
  if used + cost > limit or verb > CHARGE then
    if not count then
      --@ring
      --@read
    end
    if split > size then
      count = 0
    end
    -- The first entry from `low` on that is later than a time, or whose sum, counted from the
    -- oldest on, reaches an amount; its time; and the sum before it.
    search = search or function(low, later, reaches)
      local fronts = (split < size and split or size) - skip
      local high, at, first, lower = size - skip + count, low, newest, 0
      while low < high do
        local text, from = text, 34 + (skip + at) * width
        if at >= fronts + count then
          from = from - count * width
        elseif at >= fronts then
          text, from = read((head + at - fronts) % room, 1), 1
        end
        local time, sum = unpack(form, text, from)
        time, sum = newest - (newest - time) % times, (sum - before) % sums
        if time > later or sum >= reaches then
          high, first = at, time
        else
          low, lower = at + 1, sum
        end
        at = math.floor((low + high) / 2)
      end
      return low, first, lower
    end
    local wanted = verb == TAKE and 1 or verb <= CHECK and cost or 0
    if wanted > 0 and wanted <= limit and used + wanted > limit then
      local _
      _, frees = search(0, WIDE, used - (limit - wanted))
    end
  end
  raw = frees and pack('>BI7I7I7', 5, newest, used, frees) or pack('>BI7I7', 4, newest, used)
end
if used == 0 then
  raw, now = '\0', t
end

--@fits
fits = used + cost <= limit

--@available
available = limit - used

--@keep
several[i] = {
  taken, kind, verb, cost, limit, period, raw, now,
  used, shaped, skip, size, split, newest, total, before, lives, text, room, head, count,
}

--@recall
if shaped ~= seen[10] then
  shaped = seen[10]
  --@shape
end
used, skip, size, split = seen[9], seen[11], seen[12], seen[13]
newest, total, before, lives, text = seen[14], seen[15], seen[16], seen[17], seen[18]
room, head, count = seen[19], seen[20], seen[21]

--@take
moved, pushed = nil, nil
if used == 0 then
  -- Nothing is left of it, or there was nothing.
  moved, newest, total, before, lives = '', now, 0, 0, 0
elseif newest ~= now then
  if used >= limit + 1000 and size - skip + count + 1 >= limit + 1000 then
    -- The two oldest merge into the later.
    local at = 34 + skip * width
    text = sub(text, 1, at - 1) .. pack(form, 0, before) .. sub(text, at + width)
    skip = skip + 1
  end
  pushed, newest = newest, now
end
used = used + grant
if used > MAX then
  used = MAX
end

--@give_back
moved, pushed = nil, nil
local stop = used > 0 and (split < size and split or size)
if stop and verb == REFUND then
  -- The newest units go first.
  used = used - cost
  if used > 0 then
    local at
    at, newest = search(0, WIDE, used)
    at = at - (stop - skip)
    if at <= 0 then
      size, split, count = stop + at, 255, 0
    elseif at < count then
      size, count = stop, at
    else
      size = stop + at - count
    end
    text = sub(text, 1, 17) .. pack('>BI6I3I3I3', split, lives, room, head, count) .. sub(text, 34)
  end
elseif stop then
  -- Those of that very instant, if it still counts; the sums after it fall by as much.
  local at, time, lower = search(0, taken - 1, WIDE)
  if time == taken then
    local all = sub(text, 34 + skip * width, 33 + stop * width)
      .. read(head, count)
      .. sub(text, 34 + stop * width, 33 + size * width)
      .. pack(form, newest % times, total)
    local left, back = { sub(all, 1, at * width) }, cost
    for k = at, #all / width - 1 do
      local cut, sum = unpack(form, all, k * width + 1)
      sum = (sum - before) % sums
      if k == at and sum - lower < back then
        back = sum - lower
      end
      if k > at or sum - back > lower then
        left[#left + 1] = pack(form, cut, (before + sum - back) % sums)
      end
    end
    used = used - back
    if used > 0 then
      all = table.concat(left)
      moved = sub(all, 1, #all - width)
      local last = unpack(form, all, #moved + 1)
      newest = newest - (newest - last) % times
    end
  end
end
new = used <= 0
raw = new and '\0' or pack('>BI7I7', 4, newest, used)
if found then
  found[j] = raw
end

--@pack
local last = total
total = (before + used) % sums
local ends = newest + period
if lives * 1000 < ends or lives * 1000 > ends + period then
  lives = math.floor((ends + period) / 1000)
  expires = lives
  if not moved then
    text = sub(text, 1, 18) .. pack('>I6', lives) .. sub(text, 25)
  end
end
from = '1'
if not moved and (used >= sums or pushed and (size + 1) * width > 120) then
  -- The margin is full, or the sums need more bytes.
  --@ring
  --@read
  if split > size then
    split, count = skip + half < size and skip + half or size, 0
  end
  local fronts = sub(text, 34 + skip * width, 33 + split * width)
  local rest = sub(text, 34 + split * width, 33 + size * width)
  if pushed then
    rest, pushed = rest .. pack(form, pushed % times, last), nil
  end
  local coming = #rest / width
  local all = split - skip + count + coming
  local short = count == 0 and all <= half
  if used >= sums or room > all * 4 + 16 or count + coming > room and not short then
    moved = fronts .. read(head, count) .. rest
  else
    if short then
      -- Only what is gone has to go.
      fronts, split = fronts .. rest, 255
    else
      -- Into the ring, round its end if need be.
      local place = (head + count) % room
      local fitting = (room - place) * width
      call('SETRANGE', key, 153 + place * width, sub(rest, 1, fitting))
      if fitting < #rest then
        call('SETRANGE', key, '153', sub(rest, fitting + 1))
      end
      count, split = count + coming, 1 + split - skip
    end
    skip, size = 1, 1 + #fronts / width
    text = sub(text, 1, 17) .. pack('>BI6I3I3I3', split, lives, room, head, count)
      .. pack(form, 0, before) .. fronts
  end
end
if moved then
  -- Written anew, with room for more.
  whole = true
  if used >= sums then
    -- The sums need more bytes; they begin again.
    local old, wide, left, from = form, sums, {}, 1
    shaped = shaped % 64 + (used < 16777216 and 64 or 128)
    --@shape
    while from < #moved do
      local cut, sum
      cut, sum, from = unpack(old, moved, from)
      left[#left + 1] = pack(form, cut, (sum - before) % wide)
    end
    moved, before, total = table.concat(left), 0, used
  end
  local all = #moved / width
  size, split, room, count = 1 + all, 255, 0, 0
  if all > half then
    size, split, count = 1 + half, 1 + half, all - half
    room = count + math.floor(count / 8) + 8
    if room > limit and count <= limit then
      room = limit
    end
    local spare = string.rep('\0', (room - count) * width)
    moved = sub(moved, 1, half * width)
      .. string.rep('\0', 120 - (1 + half) * width)
      .. sub(moved, half * width + 1) .. spare
  end
  value = pack('>BBBI7I7BI6I3I3I3', shaped, 1, size, newest, total, split, lives, room, 0, count)
    .. pack(form, 0, before) .. moved
elseif pushed then
  local body = sub(text, 18, 33 + size * width)
  value = pack(header, skip, size + 1, newest, total, body, pushed % times, last)
else
  value = pack('>BBI7I7c0', skip, size, newest, total, sub(text, 18, 33 + size * width))
end

-- Sliding window log: every instant of the last period with its units. The twin of
-- sliding_window_log.rs and ring.rs.
-- An entry is a time and the running sum up to it, each truncated to its lowest bytes. Stored: a
-- 24-byte header; 60 bytes for the latest entries; and once those are full, 9 bytes that describe a
-- ring, 60 bytes for the oldest entries, and the ring with all entries between them. The newest entry
-- is in the header. The first of the oldest entries has expired: it holds the sum before the second.
-- So most decisions read and write one short string, whatever the limit. Lua interns every string it
-- reads, so shorter is faster.
-- Header: the kind and entry format, the number of oldest entries (0: no ring, the latest are all),
-- the expiry in milliseconds, the expired among the oldest, the number of latest entries, the newest
-- time, the sum up to it.
-- Ring: its capacity, its head, its length.
-- Returned: the kind, the newest time, the live units. If the request does not fit, the kind is 5 and
-- the time of the entry whose expiry makes room follows. After a refund or an undo, the new state.

--@prelude
local sub = string.sub
local used -- the live units
-- The entry format. These are the usual values: formatting numbers is slow.
local shaped, form, onward, header, width = 4, '>I4I2', '>I2I4I2', '>BBI7I7c0I4I2', 6
local times, sums, sum_bytes, slots = 4294967296, 65536, 2, 10
local fresh -- the entry format of a new log
local lives -- the expiry in milliseconds
local fronts, skip -- the number of oldest entries, and how many of those have expired
local size -- the number of latest entries
local newest, total -- the newest time, and the running sum of all
local before -- the running sum of the expired entries
local text, older, base -- the strings with the latest and the oldest entries, and where the oldest start
local room, head, count -- of the ring, if it was read
local pushed -- the time of the previous newest entry, if one was appended
local moved -- all entries but the newest, if they are to be rewritten
local read, search -- created when first needed

--@argument
fresh = period < 4294967296 and 4 or period < 1099511627776 and 20 or 36

--@shape
local time_bytes = 4 + math.floor(shaped / 16) % 4
sum_bytes = shaped < 64 and 2 or shaped < 128 and 3 or 7
width = time_bytes + sum_bytes
form = 'I' .. time_bytes .. 'I' .. sum_bytes
form, onward, header = '>' .. form, '>I' .. sum_bytes .. form, '>BBI7I7c0' .. form
times, sums = 256 ^ time_bytes, sum_bytes == 7 and WIDE or 256 ^ sum_bytes
slots = math.floor(60 / width)

--@ring
if not count then
  room, head, count = 0, 0, 0
  if fronts > 0 then
    room, head, count = unpack('>I3I3I3', text, 85)
    if count > room or head > room or room > 131072 then
      room, head, count = 0, 0, 0
    end
  end
end
-- Reads entries of the ring, wrapping around its end; missing bytes read as zeros.
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

--@write
-- Writes `rest` into the ring from `offset` on, wrapping around its end.
local fitting = (room - offset) * width
call('SETRANGE', key, 153 + offset * width, sub(rest, 1, fitting))
if fitting < #rest then
  call('SETRANGE', key, '153', sub(rest, fitting + 1))
end

--@advance
raw = pcall('GETRANGE', key, '0', '152')
if type(raw) == 'table' then
  -- Of another type, unless it fails again.
  raw = not string.find(raw.err, 'WRONGTYPE', 1, true) and call('GETRANGE', key, '0', '152')
end
used = 0
local is
if raw and #raw > 24 then
  is, fronts, lives, skip, size, newest, total = unpack('>BBI6BBI7I7', raw)
  if t < newest and newest - t <= period then
    now = newest
  end
end
local edge = now - period
local sound = (is == fresh or is == fresh + 64 or is == fresh + 128)
  and edge < newest and newest <= now
if not sound then
  is, fronts, size = fresh, 0, 0
end
if is ~= shaped then
  shaped = is
  --@shape
end
local stop = size -- of the oldest
base = 25
if fronts > 0 then
  stop = fronts
  base = 94
end
if sound and total < sums and 0 < skip and skip <= stop
  and base + stop * width <= #raw + 1 and size * width <= #raw - 24
then
  text = raw
  older = raw
  count = nil
  local age = newest - edge -- entries of this age, relative to the newest, have expired
  repeat
    -- Drops expired entries: usually one.
    local at = base + skip * width
    if skip < stop then
      local cut, sum
      before, cut, sum, at = unpack(onward, older, at - sum_bytes)
      while (newest - cut) % times >= age do
        skip = skip + 1
        before = sum
        if skip == stop then
          break
        end
        cut, sum, at = unpack(form, older, at)
      end
    else
      local _
      _, before = unpack(form, older, at - width)
    end
    local again = fronts > 0 and skip == stop
    if again then
      -- Continues with the oldest of the ring, then with the latest.
      --@ring
      local some = count < slots and count or slots - 1
      local entries = read(head, some)
      if count > some then
        local cut, sum = unpack(form, entries, (some - 1) * width + 1)
        if (newest - cut) % times >= age then
          -- Those have expired as well. Binary search for the first live one.
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
          some = count < slots and count or slots - 1
          entries = read(head, some)
        end
      end
      if count > 0 then
        head, count = (head + some) % room, count - some
      else
        some = size < slots and size or slots - 1
        entries = sub(text, 25, 24 + some * width)
        text = sub(text, 1, 24) .. sub(text, 25 + some * width, 24 + size * width)
        size = size - some
      end
      older, base = pack(form, 0, before) .. entries, 1
      skip, fronts, stop = 1, 1 + some, 1 + some
      again = some > 0
    end
  until not again
  used = (total - before) % sums
  local frees
  local checks = verb == REPEAT and taken or 1
  if used + cost * checks > limit or verb > CHARGE and verb < REPEAT then
    --@ring
    -- Binary search from `low` for the first entry that is later than a time, or whose sum reaches
    -- an amount. Returns its position, its time, and the sum before it.
    search = search or function(low, later, reaches)
      local near, high = size - skip, size - skip
      if fronts > 0 then
        near, high = fronts - skip, fronts - skip + count + size
      end
      local at, first, lower = low, newest, 0
      while low < high do
        local text, from = text, 25 + (at - near - count) * width
        if at < near then
          text, from = older, base + (skip + at) * width
        elseif at < near + count then
          text, from = read((head + at - near) % room, 1), 1
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
    local wanted = verb == TAKE and 1 or (verb <= CHECK or verb == REPEAT) and cost or 0
    -- What the checks that fit take before the first that does not.
    local ahead = verb == REPEAT and used < limit and (limit - used) - (limit - used) % cost or 0
    if wanted > 0 and wanted <= limit and used + ahead + wanted > limit then
      local _
      local reaches = used + ahead - (limit - wanted)
      if reaches > used then
        frees = now -- What they take themselves.
      else
        _, frees = search(0, WIDE, reaches)
      end
    end
  end
  raw = frees and pack('>BI7I7I7', 5, newest, used, frees) or pack('>BI7I7', 4, newest, used)
end
if used == 0 then
  raw, now = '\0', t
end

--@fits
if used + cost > limit then
  fit = false
end

--@available
available = limit - used

--@keep
several[i - first + 1] = {
  taken, kind, verb, cost, limit, period, raw, now,
  used, shaped, fronts, lives, skip, size, newest, total, before, text, older, base,
  room, head, count,
}

--@recall
if shaped ~= seen[10] then
  shaped = seen[10]
  --@shape
end
used, fronts, lives, skip, size = seen[9], seen[11], seen[12], seen[13], seen[14]
newest, total, before = seen[15], seen[16], seen[17]
text, older, base = seen[18], seen[19], seen[20]
room, head, count = seen[21], seen[22], seen[23]

--@take
moved = nil
pushed = nil
if used == 0 then
  -- New, or all expired.
  moved, newest, before, lives = '', now, 0, 0
elseif newest ~= now then
  if used >= limit + 1000 and fronts - skip + count + size + 1 >= limit + 1000 then
    -- Merges the two oldest into the later.
    older = string.rep('\0', skip * width) .. pack(form, 0, before)
      .. sub(older, base + (skip + 1) * width, base + fronts * width - 1)
    skip, base = skip + 1, 1
  end
  pushed = newest
  newest = now
end
used = used + grant
if used > MAX then
  used = MAX
end

--@refund
moved = nil
pushed = nil
unchanged = true
-- The number of oldest entries, and how many are left but the newest, which is in the header.
local near, left = fronts > 0 and fronts - skip or 0, 0
if used > 0 and verb == REFUND then
  -- Returns the newest units first.
  unchanged = false
  used = used - cost
  if used > 0 then
    left, newest = search(0, WIDE, used)
  end
elseif used > 0 then
  -- Only the entry of exactly that time, if it is among the newest 256. Usually it is the newest.
  local gone = fronts > 0 and 0 or skip -- of the latest
  local last = near + count + size - gone
  local first = last - (taken == newest and 1 or 256)
  local at, time, lower = search(first > 0 and first or 0, taken - 1, WIDE)
  if time == taken and at > last - 256 then
    -- Reads it, the one before it and all after it.
    first = at > 0 and at - 1 or 0
    local text_at = first - near - count
    local entries = sub(text, 25 + (gone + (text_at > 0 and text_at or 0)) * width, 24 + size * width)
      .. pack(form, newest, total)
    if text_at < 0 and count > 0 then
      local ring_at = first > near and first - near or 0
      entries = read((head + ring_at) % room, count - ring_at) .. entries
    end
    if first < near then
      entries = sub(older, base + (skip + first) * width, base + fronts * width - 1) .. entries
    end
    -- Lowers its sum and those after it, and removes it if nothing is left.
    local kept, back = {}, cost
    for k = first, last do
      local cut, sum = unpack(form, entries, (k - first) * width + 1)
      sum = (sum - before) % sums
      if k == at then
        back = sum - lower < back and sum - lower or back
      end
      if k < at then
        kept[1] = pack(form, cut, (before + sum) % sums)
      elseif k > at or sum - back > lower then
        kept[#kept + 1] = pack(form, cut, (before + sum - back) % sums)
      end
    end
    unchanged = back <= 0
    if not unchanged then
      used = used - back
    end
    if not unchanged and used > 0 then
      newest = newest - (newest - unpack(form, kept[#kept])) % times
      kept[#kept] = nil
      left = first + #kept
      -- Writes them back to where they were: among the oldest, in the ring, among the latest.
      entries = table.concat(kept)
      if first < near then
        older = sub(older, 1, base + (skip + first) * width - 1) .. entries
      end
      local ring_end = left < near + count and left or near + count
      if first < ring_end and near < ring_end then
        local ring_at = first > near and first or near
        local rest = sub(entries, (ring_at - first) * width + 1, (ring_end - first) * width)
        local offset = (head + ring_at - near) % room
        --@write
      end
      if left > near + count then
        local from = text_at > 0 and text_at or 0
        text = sub(text, 1, 24 + (gone + from) * width) .. sub(entries, (from - text_at) * width + 1)
      end
    end
  end
end
if not unchanged then
  new = used <= 0
  if fronts == 0 then
    size = skip + left
  elseif left <= near then
    fronts, count, size = skip + left, 0, 0
  elseif left < near + count then
    count, size = left - near, 0
  else
    size = left - near - count
  end
  raw = new and '\0' or pack('>BI7I7', 4, newest, used)
end
if found then
  found[j] = raw
end

--@pack
local last = total
total = (before + used) % sums
local longer = lives * 1000 - newest - period -- than it must live
if longer < 0 or longer > period then
  lives = math.floor((newest + period + period) / 1000)
  expires = lives
end
if not moved and (used >= sums or pushed and (size + 1) * width > 60) then
  -- No room for one more, or the sums need more bytes.
  --@ring
  local gone = fronts > 0 and 0 or skip
  local rest = sub(text, 25 + gone * width, 24 + size * width)
  if pushed then
    rest, pushed = rest .. pack(form, pushed, last), nil
  end
  local coming = #rest / width
  local all = fronts - skip + count + coming
  if used >= sums then
    moved = rest
  elseif fronts == 0 and coming + 1 < slots then
    -- Dropping the expired is enough.
    text, skip, size = sub(text, 1, 24) .. pack(form, 0, before) .. rest, 1, 1 + coming
  elseif fronts == 0 or count + coming > room or room > all * 4 + 16 then
    moved = rest
  else
    -- Into the ring, wrapping around its end.
    local offset = (head + count) % room
    --@write
    count, size = count + coming, 0
  end
  if moved and fronts > 0 then
    moved = sub(older, base + skip * width, base + fronts * width - 1) .. read(head, count) .. moved
  end
end
if moved then
  -- Rewritten, with room for more.
  whole = true
  if used >= sums then
    -- The sums need more bytes; they restart at 0.
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
  local all, gone = #moved / width, pack(form, 0, before)
  if all + 1 < slots then
    value = pack('>BBI6BBI7I7', shaped, 0, lives, 1, 1 + all, newest, total) .. gone .. moved
  else
    local near = (slots - 1) * width
    count = all - (slots - 1)
    room = count + math.floor(count / 8) + 8
    if room > limit and count <= limit then
      room = limit
    end
    value = pack('>BBI6BBI7I7', shaped, slots, lives, 1, 0, newest, total)
      .. string.rep('\0', 60) .. pack('>I3I3I3', room, 0, count)
      .. gone .. sub(moved, 1, near) .. string.rep('\0', 60 - slots * width)
      .. sub(moved, near + 1) .. string.rep('\0', (room - count) * width)
  end
else
  from = '8'
  local latest = sub(text, 25, 24 + size * width)
  if pushed then
    value = pack(header, skip, size + 1, newest, total, latest, pushed, last)
  else
    value = pack('>BBI7I7c0', skip, size, newest, total, latest)
  end
  if count and fronts > 0 then
    -- The ring or the oldest may have changed as well.
    value = value .. string.rep('\0', 76 - #value) .. pack('>I3I3I3', room, head, count)
      .. sub(older, base, base + fronts * width - 1)
  end
  if expires or count then
    value, from = pack('>BI6', fronts, lives) .. value, '1'
  end
end

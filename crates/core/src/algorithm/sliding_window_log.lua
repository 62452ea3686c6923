-- Sliding window log: every instant of the last period with its units. The twin of
-- sliding_window_log.rs and ring.rs.
-- An entry is a time and the running sum up to it, each cut to its lowest bytes. Stored: a header
-- of 48 bytes; a margin of 96 with copies of the ring's first entries and, after those, the
-- entries that are not in the ring yet; a ring of entries. The newest entry is in the header. So
-- most decisions read and write one short text, whatever the limit.
-- Answered: the kind, the newest time, the units that count and, if they are too many, the time
-- of the entry whose end makes room. After a refund or an undo, what is then.

--@prelude
local sub = string.sub
local HEADER = '>BBBI3I3I3BBI7I7I7I7I6'
local used -- the units that count
local time_bytes, sum_bytes, form, width, times, sums -- how entries are written down
local room, head, count -- of the ring: how many entries it could hold, its oldest, how many it has
local margin, fronts, tails -- the entries beside the header: copies, and those after the ring's
local newest, oldest -- times
local before, total -- running sums: before the oldest entry, and of all
local lives -- the millisecond it expires at
local moved -- all entries but the newest, if not only those at the ends have changed
local search -- made when it is needed, which is seldom

local function shape(time_bytes, sum_bytes)
  if time_bytes == 4 and sum_bytes == 2 then
    -- Nearly always; and numbers are slow to become text.
    return '>I4I2', 6, 4294967296, 65536
  end
  local times = time_bytes == 4 and 4294967296
    or time_bytes == 5 and 1099511627776
    or 281474976710656
  local sums = sum_bytes == 2 and 65536 or sum_bytes == 3 and 16777216 or WIDE
  return '>I' .. time_bytes .. 'I' .. sum_bytes, time_bytes + sum_bytes, times, sums
end

-- Entries from a place in the ring on, round its end if need be; missing bytes read as zeros.
local function read(width, room, from, entries)
  if from + entries > room then
    return read(width, room, from, room - from) .. read(width, room, 0, from + entries - room)
  end
  local text = ''
  if entries > 0 then
    text = call('GETRANGE', key, 144 + from * width, 143 + (from + entries) * width)
  end
  if #text < entries * width then
    text = text .. string.rep('\0', entries * width - #text)
  end
  return text
end

--@advance
raw = pcall('GETRANGE', key, '0', '143')
used = 0
local is
if raw and #raw >= 48 then
  is, time_bytes, sum_bytes, room, head, count, fronts, tails, newest, oldest, before, total, lives =
    unpack(HEADER, raw)
  if t < newest and newest - t <= period then
    now = newest
  end
end
local edge = now - period
if
  is == 4 and edge < newest and newest <= now
  and time_bytes == (period < 4294967296 and 4 or period < 1099511627776 and 5 or 6)
  and (sum_bytes == 2 or sum_bytes == 3 or sum_bytes == 7) and total < WIDE and before < WIDE
  and fronts <= count and count <= room and head <= room and room <= 131072
  and (fronts + tails) * (time_bytes + sum_bytes) <= #raw - 48
then
  form, width, times, sums = shape(time_bytes, sum_bytes)
  local text, from, copied = raw, 49 -- the margin is there from that byte on
  while oldest and oldest <= edge do
    -- Drops what no longer counts. Usually one of the copies does; if none, a few more are made.
    local gone, last = 0, fronts < count and fronts or fronts + tails
    oldest = nil
    while not oldest and gone < last do
      local time, sum = unpack(form, text, from + gone * width)
      time = newest - (newest - time) % times
      if time > edge then
        oldest = time
      else
        gone, before = gone + 1, sum
      end
    end
    from = from + gone * width
    if gone < count then
      head, count, fronts = (head + gone) % room, count - gone, fronts - gone
    else
      head, count, fronts, tails = 0, 0, 0, tails - (gone - count)
      oldest = oldest or newest
    end
    if not oldest and not copied then
      copied = math.min(count, floor(48 / width))
      text = read(width, room, head, copied) .. sub(text, from, from + tails * width - 1)
      from, fronts, oldest = 1, copied, edge
    end
  end
  margin = sub(text, from, from + (fronts + tails) * width - 1)
  used = (total - before) % sums
  local wanted = verb == TAKE and 1 or verb <= CHECK and cost or 0
  local refused = wanted > 0 and wanted <= limit and used + wanted > limit
  if not oldest or refused or verb > CHARGE or count + tails + 1 >= limit + 1000 then
    -- The first entry from `low` on that is later than a time, or whose sum, counted from the
    -- oldest on, reaches an amount; its time; and the sum before it.
    search = search or function(low, later, reaches)
      local high, at, first, lower = count + tails, low, newest, 0
      while low < high do
        local text, from = margin, at
        if at >= count then
          from = at - count + fronts
        elseif at >= fronts then
          text, from = read(width, room, (head + at) % room, 1), 0
        end
        local time, sum = unpack(form, text, from * width + 1)
        time, sum = newest - (newest - time) % times, (sum - before) % sums
        if time > later or sum >= reaches then
          high, first = at, time
        else
          low, lower = at + 1, sum
        end
        at = floor((low + high) / 2)
      end
      return low, first, lower
    end
  end
  if not oldest then
    local gone, lost
    gone, oldest, lost = search(0, edge, WIDE)
    before, used = (before + lost) % sums, (used - lost) % sums
    if gone < count then
      head, count = (head + gone) % room, count - gone
    else
      margin, tails = sub(margin, (gone - count) * width + 1), tails - (gone - count)
      head, count = 0, 0
    end
    refused = refused and used + wanted > limit
  end
  local frees = 0
  if refused then
    local _
    _, frees = search(0, WIDE, used - (limit - wanted))
  end
  raw = pack('>BI7I7I7', 4, newest, used, frees)
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
  used, time_bytes, sum_bytes, form, width, times, sums, room, head, count,
  margin, fronts, tails, newest, oldest, before, total, lives,
}

--@recall
used, time_bytes, sum_bytes, form, width = seen[9], seen[10], seen[11], seen[12], seen[13]
times, sums, room, head, count = seen[14], seen[15], seen[16], seen[17], seen[18]
margin, fronts, tails, newest = seen[19], seen[20], seen[21], seen[22]
oldest, before, total, lives = seen[23], seen[24], seen[25], seen[26]

--@take
moved = nil
if used == 0 then
  -- Nothing is left of it, or there was nothing.
  time_bytes, sum_bytes = period < 4294967296 and 4 or period < 1099511627776 and 5 or 6, 2
  form, width, times, sums = shape(time_bytes, sum_bytes)
  room, head, count, margin, fronts, tails = 0, 0, 0, '', 0, 0
  newest, oldest, before, lives = now, now, 0, 0
elseif newest ~= now then
  if count + tails + 1 >= limit + 1000 then
    -- The two oldest merge into the later.
    local _
    _, oldest = search(1, -1, 0)
    if fronts > 0 or count == 0 then
      margin = sub(margin, width + 1)
    end
    if count > 0 then
      head, count, fronts = (head + 1) % room, count - 1, fronts > 0 and fronts - 1 or 0
    else
      tails = tails - 1
    end
  end
  margin, tails = margin .. pack(form, newest % times, total), tails + 1
  newest = now
end
used = used + grant
if used > MAX then
  used = MAX
end

--@give_back
moved = nil
if used > 0 and verb == REFUND then
  -- The newest units go first.
  used = used - cost
  if used > 0 then
    local at
    at, newest = search(0, WIDE, used)
    if at < count then
      count, fronts, tails = at, math.min(at, fronts), 0
    else
      tails = at - count
    end
    margin = sub(margin, 1, (fronts + tails) * width)
  end
elseif used > 0 then
  -- Those of that very instant, if it still counts; the sums after it fall by as much.
  local at, time, lower = search(0, taken - 1, WIDE)
  if time == taken then
    local text = read(width, room, head, count) .. sub(margin, fronts * width + 1)
    text = text .. pack(form, newest % times, total)
    local left, back = { sub(text, 1, at * width) }, cost
    for k = at, #text / width - 1 do
      local cut, sum = unpack(form, text, k * width + 1)
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
      text = table.concat(left)
      moved = sub(text, 1, #text - width)
      local first, last = unpack(form, text), unpack(form, text, #moved + 1)
      newest = newest - (newest - last) % times
      oldest = newest - (newest - first) % times
    end
  end
end
new = used <= 0
raw = new and '\0' or pack('>BI7I7I7', 4, newest, used, 0)
if found then
  found[j] = raw
end

--@pack
total = (before + used) % sums
local ends = newest + period
if lives * 1000 < ends or lives * 1000 > ends + period then
  lives = floor((ends + period) / 1000)
  expires = lives
end
local all = count + tails
if moved or used >= sums or room > all * 4 + 16 or tails * width > 48 and all > room then
  -- Written anew, with room for more.
  whole = true
  if not moved then
    moved = read(width, room, head, count) .. sub(margin, fronts * width + 1)
  end
  if used >= sums then
    -- The sums need more bytes; they begin again.
    local old, wide, left = form, sums, {}
    sum_bytes = used < 16777216 and 3 or 7
    form, width, times, sums = shape(time_bytes, sum_bytes)
    local from = 1
    while from < #moved do
      local cut, sum
      cut, sum, from = unpack(old, moved, from)
      left[#left + 1] = pack(form, cut, (sum - before) % wide)
    end
    moved, before, total = table.concat(left), 0, used
  end
  all = #moved / width
  if #moved <= 48 then
    room, head, count, margin, fronts, tails, moved = 0, 0, 0, moved, 0, all, ''
  else
    room, head, count, fronts, tails = all + floor(all / 8) + 8, 0, all, floor(48 / width), 0
    if room > limit and all <= limit then
      room = limit
    end
    margin = sub(moved, 1, fronts * width)
    local spare = string.rep(string.rep('\0', width), room - all)
    moved = string.rep('\0', 96 - #margin) .. moved .. spare
  end
elseif tails * width > 48 then
  -- Into the ring, round its end if need be.
  local from, text = (head + count) % room, sub(margin, fronts * width + 1)
  local fitting = math.min(tails, room - from) * width
  call('SETRANGE', key, 144 + from * width, sub(text, 1, fitting))
  if fitting < #text then
    call('SETRANGE', key, '144', sub(text, fitting + 1))
  end
  if count == 0 then
    fronts = floor(48 / width)
  end
  count, margin, tails = all, sub(margin, 1, fronts * width), 0
end
value = pack(
  '>I3I3BBI7I7I7I7I6', head, count, fronts, tails, newest, oldest, before, total, lives
) .. margin
from = '6'
if whole or raw == '\0' then
  value = pack('>BBBI3', 4, time_bytes, sum_bytes, room) .. value .. (moved or '')
end

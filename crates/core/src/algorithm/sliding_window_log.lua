-- Sliding window log: every instant of the last period with its units. The twin of
-- sliding_window_log.rs and ring.rs.
-- Stored: a header of 46 bytes (the kind, the bytes of an entry's time and of its sum, how many
-- entries there is room for, where the oldest is, how many there are, the newest time, the oldest
-- time, the sum before the oldest, the sum of all, the millisecond it expires at), then a ring of
-- entries: a time and the running sum up to it, each cut to its lowest bytes.
-- Answered: the kind, the newest time, the units that count and, if they are too many, the time
-- of the entry whose end makes room. After a refund or an undo, what is then.
-- a: the header, b: the entries that no longer count, c: their units, d: the units that count,
-- f: the time of the first entry that counts.

--@prelude
local HEADER = '>BBBI3I3I3I7I7I7I7I6'

-- Unpacks an entry: its time, and its sum counted from the oldest on.
local function entry(log, text, from)
  local time, sum = unpack(log.form, text, from)
  return log.newest - (log.newest - time) % log.times, (sum - log.before) % log.sums
end

-- Reads some entries from a place on, up to the ring's end; missing bytes read as zeros.
local function read(key, log, at, count)
  local from = 46 + (log.head + at) % log.room * log.width
  local text = call('GETRANGE', key, from, from + count * log.width - 1)
  if #text < log.width then
    text = string.rep('\0', log.width)
  end
  return text
end

-- The first entry from `low` on that is later than a time, or whose sum reaches an amount; its
-- time; and the sum before it.
local function search(key, log, low, before, later, reaches)
  local high, at, first = log.count, low, log.newest
  while low < high do
    local time, sum = entry(log, read(key, log, at, 1), 1)
    if time > later or sum >= reaches then
      high, first = at, time
    else
      low, before = at + 1, sum
    end
    at = floor((low + high) / 2)
  end
  return low, first, before
end

-- All entries in order, in one text.
local function entries(key, log, count)
  local whole = log.room - log.head
  if count <= whole then
    return count > 0 and read(key, log, 0, count) or ''
  end
  return read(key, log, 0, whole) .. read(key, log, whole, count - whole)
end

local function head(log)
  return pack(
    HEADER, 4, log.time_bytes, log.sum_bytes, log.room, log.head, log.count,
    log.newest, log.oldest, log.before, log.total, log.expires
  )
end

local function form(log, sum_bytes)
  log.sum_bytes, log.sums = sum_bytes, sum_bytes == 3 and 16777216 or WIDE
  log.form, log.width = '>I' .. log.time_bytes .. 'I' .. sum_bytes, log.time_bytes + sum_bytes
end

--@advance
raw = pcall('GETRANGE', key, '0', '45')
a = { times = period < 1099511627776 and 1099511627776 or 281474976710656 }
a.time_bytes = a.times == 1099511627776 and 5 or 6
if type(raw) == 'string' and #raw == 46 then
  local time_bytes, sum_bytes
  e, time_bytes, sum_bytes, a.room, a.head, a.count, a.newest, a.oldest, a.before, a.total, a.expires =
    unpack(HEADER, raw)
  if
    e ~= 4 or time_bytes ~= a.time_bytes or (sum_bytes ~= 3 and sum_bytes ~= 7)
    or a.head >= a.room or a.count == 0 or a.count > a.room
    or a.newest > MAX or a.oldest > a.newest or a.before >= WIDE or a.total >= WIDE
  then
    e = nil
  elseif t < a.newest and a.newest - t <= period then
    now = a.newest
  elseif t < a.newest then
    e = nil
  end
  form(a, sum_bytes)
end
raw, b, c, d, f = '\0', 0, 0, 0, 0
if e then
  local edge, all = now - period, (a.total - a.before) % a.sums
  f = a.oldest
  if f <= edge then
    -- A few at once: usually no more than those have come to their end.
    local text = read(key, a, 0, 8)
    local time, sum = f, 0
    repeat
      time, sum = entry(a, text, b * a.width + 1)
      if time <= edge then
        b, c = b + 1, sum
      end
    until time > edge or b == a.count or (b + 1) * a.width > #text
    f = time
    if time <= edge and b < a.count then
      b, f, c = search(key, a, b, c, edge, WIDE)
    end
  end
  if b < a.count then
    d = all - c
    local frees, wanted = 0, 0
    if verb <= CHECK then
      wanted = cost
    elseif verb == TAKE then
      wanted = 1
    end
    if wanted > 0 and wanted <= limit and d + wanted > limit then
      local _
      _, frees = search(key, a, b, c, WIDE, all - (limit - wanted))
    end
    raw = pack('>BI7I7I7', 4, a.newest, d, frees)
  end
end

--@fits
fits = d + cost <= limit

--@available
available = limit - d

--@take
if d == 0 then
  -- Nothing is left of it, or there was nothing.
  a.room, a.head, a.count, a.before, a.expires = 0, 0, 0, 0, 0
  form(a, 3)
else
  a.head, a.count = (a.head + b) % a.room, a.count - b
  a.before, a.oldest = (a.before + c) % a.sums, f
end
d = d + grant
if d > MAX then
  d = MAX
end
if a.count == 0 or a.newest ~= now then
  if a.count >= limit + 1000 then
    -- The two oldest merge into the later.
    a.head, a.count = (a.head + 1) % a.room, a.count - 1
    a.oldest = entry(a, read(key, a, 0, 1), 1)
  end
  a.count, a.newest = a.count + 1, now
  if a.count == 1 then
    a.oldest = now
  end
end
g = nil

--@give_back
g = nil
if d > 0 then
  a.head, a.count = (a.head + b) % a.room, a.count - b
  a.before, a.oldest = (a.before + c) % a.sums, f
  if verb == REFUND then
    -- The newest units go first.
    d = d - cost
    if d > 0 then
      local at, time = search(key, a, 0, 0, WIDE, d)
      a.count, a.newest = at + 1, time
    end
  else
    -- Those of that very instant, if it still counts; the sums after it fall by as much.
    local at, time, before = search(key, a, 0, 0, taken - 1, WIDE)
    if at < a.count and time == taken then
      local text, back = entries(key, a, a.count), cost
      local left = { string.sub(text, 1, at * a.width) }
      for k = at, a.count - 1 do
        local time, sum = entry(a, text, k * a.width + 1)
        if k == at and sum - before < back then
          back = sum - before
        end
        if k > at or sum - back > before then
          left[#left + 1] = pack(a.form, time % a.times, (a.before + sum - back) % a.sums)
        end
      end
      text = table.concat(left)
      a.count, d = #text / a.width, d - back
      if d > 0 then
        a.oldest = entry(a, text, 1)
        g = string.sub(text, 1, #text - a.width)
        a.newest = entry(a, text, #g + 1)
      end
    end
  end
end
new = d <= 0
found[j] = new and '\0' or pack('>BI7I7I7', 4, a.newest, d, 0)

--@pack
-- The last entry is the newest time and the sum of all; g: the entries before it, if they moved.
a.total = (a.before + d) % a.sums
local ends = a.newest + period
if a.expires * 1000 < ends or a.expires * 1000 > ends + period then
  a.expires = floor((ends + period) / 1000)
  expires = a.expires
end
local wider = a.sum_bytes == 3 and d >= 16777216
if g or wider or a.count > a.room or a.room > 16 and a.count * 4 < a.room then
  g = g or entries(key, a, a.count - 1)
  if wider then
    local left = {}
    for k = 1, a.count - 1 do
      local time, sum = entry(a, g, (k - 1) * a.width + 1)
      left[k] = pack('>I' .. a.time_bytes .. 'I7', time % a.times, sum)
    end
    form(a, 7)
    g, a.before, a.total = table.concat(left), 0, d
  end
  a.room, a.head = a.count + floor(a.count / 8) + 2, 0
  if a.room > limit and a.count <= limit then
    a.room = limit
  end
  local last = pack(a.form, a.newest % a.times, a.total)
  value = head(a) .. g .. last .. string.rep('\0', (a.room - a.count) * a.width)
else
  local at = (a.head + a.count - 1) % a.room
  call('SETRANGE', key, 46 + at * a.width, pack(a.form, a.newest % a.times, a.total))
  call('SETRANGE', key, '0', head(a))
  if expires and not supplied then
    call('PEXPIREAT', key, expires)
  end
  value = true
end

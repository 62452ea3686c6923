-- Sliding window log: every instant of the last period with its units. The twin of
-- sliding_window_log.rs and ring.rs.
-- An entry is a time and the running sum up to it, each cut to its lowest bytes. Stored: a header
-- of 48 bytes; a margin of 96 with copies of the ring's first entries and, after those, the
-- entries that are not in the ring yet; a ring of entries. The newest entry is in the header. So
-- most decisions read and write one short text, whatever the limit.
-- Answered: the kind, the newest time, the units that count and, if they are too many, the time
-- of the entry whose end makes room. After a refund or an undo, what is then.

--@prelude
local HEADER = '>BBBI3I3I3BBI7I7I7I7I6'
local log -- what the header says, and the entries in the margin
local used -- the units that count
local gone, lost -- the entries that no longer count, and their units
local left -- the time of the first entry that counts
local moved -- all entries but the newest, if not only those at the ends have changed

-- How entries are written down.
local function form(time_bytes, sum_bytes)
  return (time_bytes == 4 and '>I4' or time_bytes == 5 and '>I5' or '>I6')
    .. (sum_bytes == 2 and 'I2' or sum_bytes == 3 and 'I3' or 'I7')
end

-- An entry of a text: its time, and its sum counted from the oldest on.
local function entry(log, text, at)
  local time, sum = unpack(log.form, text, at * log.width + 1)
  return log.newest - (log.newest - time) % log.times, (sum - log.before) % log.sums
end

-- At most so many entries of the ring, up to its end; missing bytes read as zeros.
local function read(log, at, entries)
  local from, width = (log.head + at) % log.room, log.width
  entries = math.min(entries, log.count - at, log.room - from)
  local text = call('GETRANGE', key, 144 + from * width, 143 + (from + entries) * width)
  if #text < entries * width then
    text = text .. string.rep('\0', entries * width - #text)
  end
  return text
end

-- Passes over the entries of a text that no longer count: how many are gone then, with how many
-- units; the time of the first that counts, and the text from there on.
local function pass(log, text, edge, gone, lost)
  local width = log.width
  for at = 0, #text / width - 1 do
    local time, sum = entry(log, text, at)
    if time > edge then
      return gone + at, lost, time, string.sub(text, at * width + 1)
    end
    lost = sum
  end
  return gone + #text / width, lost, nil, ''
end

-- The first entry from `low` on that is later than a time, or whose sum reaches an amount; its
-- time; and the sum before it. The copies begin with entry number `from`.
local function search(log, from, low, lower, later, reaches)
  local high, at, first = log.count + #log.tail / log.width, low, log.newest
  local copied = from + #log.front / log.width
  while low < high do
    local time, sum
    if at >= log.count then
      time, sum = entry(log, log.tail, at - log.count)
    elseif at < copied then
      time, sum = entry(log, log.front, at - from)
    else
      time, sum = entry(log, read(log, at, 1), 0)
    end
    if time > later or sum >= reaches then
      high, first = at, time
    else
      low, lower = at + 1, sum
    end
    at = floor((low + high) / 2)
  end
  return low, first, lower
end

-- Drops entries and units from the front.
local function drop(log, entries, units, oldest)
  if entries < log.count then
    log.head, log.count = (log.head + entries) % log.room, log.count - entries
  else
    log.tail = string.sub(log.tail, (entries - log.count) * log.width + 1)
    log.head, log.count, log.front = 0, 0, ''
  end
  log.before, log.oldest = (log.before + units) % log.sums, oldest
end

-- All entries but the newest in order.
local function entries(log)
  local text = ''
  while #text < log.count * log.width do
    text = text .. read(log, #text / log.width, log.count)
  end
  return text .. log.tail
end

--@advance
raw = pcall('GETRANGE', key, '0', '143')
used = 0
if type(raw) == 'string' and #raw >= 48 then
  local is, time_bytes, sum_bytes, room, head, count, fronts, tails, newest, oldest, before, total, lives =
    unpack(HEADER, raw)
  local width = time_bytes + sum_bytes
  local margin = 48 + fronts * width
  if t < newest and newest - t <= period then
    now = newest
  end
  local edge = now - period
  if
    is == 4 and edge < newest and newest <= now
    and time_bytes == (period < 4294967296 and 4 or period < 1099511627776 and 5 or 6)
    and (sum_bytes == 2 or sum_bytes == 3 or sum_bytes == 7) and total < WIDE and before < WIDE
    and fronts <= count and count <= room and head <= room and room <= 131072
    and margin + tails * width <= #raw
  then
    log = {
      form = form(time_bytes, sum_bytes), width = width, sum_bytes = sum_bytes,
      times = time_bytes == 4 and 4294967296 or time_bytes == 5 and 1099511627776 or 281474976710656,
      sums = sum_bytes == 2 and 65536 or sum_bytes == 3 and 16777216 or WIDE,
      room = room, head = head, count = count,
      front = string.sub(raw, 49, margin), tail = string.sub(raw, margin + 1, margin + tails * width),
      newest = newest, oldest = oldest, before = before, total = total, lives = lives,
    }
    gone, lost, left = 0, 0, oldest
    if oldest <= edge then
      gone, lost, left, log.front = pass(log, log.front, edge, 0, 0)
      if not left and gone < count then
        local text = read(log, gone, floor(48 / width))
        gone, lost, left, log.front = pass(log, text, edge, gone, lost)
      end
      if not left and gone < count then
        gone, left, lost = search(log, gone, gone, lost, edge, WIDE)
      elseif not left then
        gone, lost, left = pass(log, log.tail, edge, gone, lost)
        left = left or newest
      end
    end
    used = ((total - before) % log.sums - lost) % log.sums
  end
end
if used == 0 then
  raw = '\0'
else
  local frees, wanted = 0, 0
  if verb <= CHECK then
    wanted = cost
  elseif verb == TAKE then
    wanted = 1
  end
  if wanted > 0 and wanted <= limit and used + wanted > limit then
    local _
    _, frees = search(log, gone, gone, lost, WIDE, used + lost - (limit - wanted))
  end
  raw = pack('>BI7I7I7', 4, log.newest, used, frees)
end

--@fits
fits = used + cost <= limit

--@available
available = limit - used

--@keep
several[i] = { raw, now, log, used, gone, lost, left }

--@recall
raw, now, log, used, gone, lost, left = seen[1], seen[2], seen[3], seen[4], seen[5], seen[6], seen[7]

--@take
moved = nil
if used == 0 then
  -- Nothing is left of it, or there was nothing.
  local time_bytes = period < 4294967296 and 4 or period < 1099511627776 and 5 or 6
  log = {
    form = form(time_bytes, 2), width = time_bytes + 2, sum_bytes = 2,
    times = 256 ^ time_bytes, sums = 65536,
    room = 0, head = 0, count = 0, front = '', tail = '',
    newest = now, oldest = now, before = 0, total = 0, lives = 0,
  }
else
  drop(log, gone, lost, left)
  if log.newest ~= now then
    if log.count + #log.tail / log.width + 1 >= limit + 1000 then
      -- The two oldest merge into the later.
      local _, second = search(log, 0, 1, 0, -1, 0)
      log.front = string.sub(log.front, log.width + 1)
      drop(log, 1, 0, second)
    end
    log.tail = log.tail .. pack(log.form, log.newest % log.times, log.total)
    log.newest = now
  end
end
used = used + grant
if used > MAX then
  used = MAX
end

--@give_back
moved = nil
if used > 0 then
  drop(log, gone, lost, left)
  if verb == REFUND then
    -- The newest units go first.
    used = used - cost
    if used > 0 then
      local at, time = search(log, 0, 0, 0, WIDE, used)
      if at < log.count then
        log.count, log.tail, log.front = at, '', string.sub(log.front, 1, at * log.width)
      else
        log.tail = string.sub(log.tail, 1, (at - log.count) * log.width)
      end
      log.newest = time
    end
  else
    -- Those of that very instant, if it still counts; the sums after it fall by as much.
    local at, time, lower = search(log, 0, 0, 0, taken - 1, WIDE)
    if time == taken then
      local text = entries(log) .. pack(log.form, log.newest % log.times, log.total)
      local rest, back = { string.sub(text, 1, at * log.width) }, cost
      for k = at, #text / log.width - 1 do
        local time, sum = entry(log, text, k)
        if k == at and sum - lower < back then
          back = sum - lower
        end
        if k > at or sum - back > lower then
          rest[#rest + 1] = pack(log.form, time % log.times, (log.before + sum - back) % log.sums)
        end
      end
      used = used - back
      if used > 0 then
        text = table.concat(rest)
        moved = string.sub(text, 1, #text - log.width)
        log.oldest, log.newest = entry(log, text, 0), entry(log, text, #moved / log.width)
      end
    end
  end
end
new = used <= 0
found[j] = new and '\0' or pack('>BI7I7I7', 4, log.newest, used, 0)

--@pack
log.total = (log.before + used) % log.sums
local ends = log.newest + period
if log.lives * 1000 < ends or log.lives * 1000 > ends + period then
  log.lives = floor((ends + period) / 1000)
  expires = log.lives
end
local width = log.width
local tails = #log.tail / width
local all = log.count + tails
local wider = used >= log.sums
if moved or wider or log.room > all * 4 + 16 or #log.tail > 48 and all > log.room then
  -- Written anew, with room for more.
  whole, moved = true, moved or entries(log)
  if wider then
    local time_bytes, rest = width - log.sum_bytes, {}
    local sum_bytes = used < 16777216 and 3 or 7
    local wide = form(time_bytes, sum_bytes)
    for k = 0, #moved / width - 1 do
      local time, sum = entry(log, moved, k)
      rest[k + 1] = pack(wide, time % log.times, sum)
    end
    moved, width = table.concat(rest), time_bytes + sum_bytes
    log.form, log.width, log.sum_bytes = wide, width, sum_bytes
    log.sums = sum_bytes == 3 and 16777216 or WIDE
    log.before, log.total = 0, used
  end
  log.room, log.head, log.count, log.front, log.tail = 0, 0, 0, '', moved
  if #moved > 48 then
    local count = #moved / width
    log.room = count + floor(count / 4) + 16
    if log.room > limit and count <= limit then
      log.room = limit
    end
    log.count, log.front, log.tail = count, string.sub(moved, 1, floor(48 / width) * width), ''
    moved = moved .. string.rep(string.rep('\0', width), log.room - count)
  end
elseif #log.tail > 48 then
  -- Into the ring, round its end if need be.
  local from = (log.head + log.count) % log.room
  local fitting = math.min(tails, log.room - from) * width
  call('SETRANGE', key, 144 + from * width, string.sub(log.tail, 1, fitting))
  if fitting < #log.tail then
    call('SETRANGE', key, '144', string.sub(log.tail, fitting + 1))
  end
  if log.count == 0 then
    log.front = string.sub(log.tail, 1, floor(48 / width) * width)
  end
  log.count, log.tail = all, ''
end
value = pack(
  HEADER, 4, width - log.sum_bytes, log.sum_bytes, log.room, log.head, log.count,
  #log.front / width, #log.tail / width,
  log.newest, log.oldest, log.before, log.total, log.lives
) .. log.front .. log.tail
if whole and log.room > 0 then
  value = value .. string.rep('\0', 144 - #value) .. moved
end

-- Evaluates any number of independent requests, each with one or several limits, all or nothing.
-- The twin of evaluate.rs. Returns the states it found; Rust derives the decisions from those.
-- A line that starts with `--@` is replaced by that part of each algorithm in use.
--
-- KEYS[i]    the counter of limit i; after all of these the further keys of each limit, in order:
--            those of its algorithm, and that of a reservation
-- ARGV[1]    the number of limits, if there may be further keys, and the arguments of the limits: the
--            number of consecutive single-limit requests with the same argument, kind, verb, whether
--            the next limit belongs to the same request, cost, limit, period, the algorithm's own
--            fields, for an undo the time of the take (of a hold, the end to restore), for the refund
--            of a tail the expected end of the schedule, for a repeated check how many, and for a
--            lease the divisor of what is available
-- ARGV[2, 3] seconds and microseconds to use instead of the server's time
-- Returns    seconds, microseconds, and the state found for each limit: \0 if there is none; before
--            that of a reserve or a settle the reservation found
local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local PEEK, CHECK, TAKE, CHARGE, REFUND, RESET, UNDO, TAIL, REPEAT, LEASE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
local MAX = 4503599627370496 -- 2^52: the latest time and the maximum count
local WIDE = 9007199254740992 -- 2^53: larger products are computed in parts

local ARGV = ARGV
local arguments, seconds, micros = ARGV[1], ARGV[2], ARGV[3]
local supplied = seconds
if not supplied then
  local time = call('TIME')
  seconds, micros = time[1], time[2]
end
local t = seconds * 1000000 + micros

local KEYS = KEYS
local last = #KEYS
local offset, repeats = 1, 0 -- of the next argument; of the current argument
--@extra
-- The state of each limit, if there are several. Preallocated tables are cheaper.
local found = last > 1 and { nil, nil, nil, nil }
local several -- the variables of each limit of a request but its last
-- The counter's key, its stored value, and the effective time.
local key, raw, now
local kind, verb, more, cost, limit, period
local taken -- the time of the take, the expected end, the number of checks, or the divisor
local values, written -- the values of several keys, and which of those were written since
--@values
--@prelude
local i = 1
while i <= last do
  -- Whether every limit fits, and the least that any grants: units, or repeated checks.
  local fit, grant = true, 4294967295
  local first = i
  repeat
    key = KEYS[i]
    if repeats == 0 then
      repeats, kind, verb, more, cost, limit, period, offset = unpack('>I2BBBI4I4I7', arguments, offset)
      --@argument
      if verb >= UNDO then
        taken, offset = unpack('>I7', arguments, offset)
      end
    end
    repeats = repeats - 1
    --@keys
    --@reserved
    if verb == RESET then
      raw = '\0'
      --@reset
    else
      now = t
      --@advance
      if verb == CHECK then
        --@fits
      elseif verb == TAKE then
        local available
        --@available
        if cost < available then
          available = cost
        end
        if available < grant then
          grant = available
        end
        fit = grant > 0
      elseif verb == TAIL then
        --@tail
      elseif verb == REPEAT then
        -- The first of the checks that fit.
        local available
        --@available
        available = math.floor(available / cost)
        if taken < available then
          available = taken
        end
        if available < grant then
          grant = available
        end
        fit = grant > 0
      elseif verb == LEASE then
        -- A part of what is available; a single unit is not worth a lease.
        local available
        --@available
        available = math.floor(available / taken)
        grant = cost < available and cost or available
        fit = grant > 1
      end
      --@renewed
      if more == 1 then
        several = several or { nil, nil, nil, nil }
        --@keep
      end
    end
    if last > 1 then
      found[i] = raw
    end
    i = i + 1
  until more == 0

  if fit then
    local checks = grant
    -- From the last, whose variables are still set.
    for j = i - 1, first, -1 do
      if j < i - 1 then
        key = KEYS[j]
        if verb ~= RESET then
          local seen = several[j - first + 1]
          taken, kind, verb, cost = seen[1], seen[2], seen[3], seen[4]
          limit, period, raw, now = seen[5], seen[6], seen[7], seen[8]
          --@recall
        end
      end
      -- What to store (nil if as new), from which byte on, whether the length changes, and the new
      -- expiry in milliseconds if it changes.
      local value, from, whole, expires
      -- A cost of 0, or nothing to return: the state stays as it is.
      local unchanged = verb == PEEK
      if verb == RESET or verb == PEEK then
        value = nil
      elseif verb <= CHARGE or verb >= REPEAT then
        if verb == REPEAT then
          grant = checks * cost
        elseif verb == CHECK or verb == CHARGE then
          grant = cost
        end
        --@take
        --@pack
      else
        -- An undo returns only units that still count.
        local new
        --@refund
        if not unchanged and not new then
          --@pack
        end
      end
      expires = expires and not supplied and string.format('%d', expires)
      if unchanged then
        -- Also a state that is as new: it may matter again when the clock steps back.
      elseif not value then
        call('DEL', key)
      elseif not whole and raw ~= '\0' then
        -- In place: half the cost of SET.
        call('SETRANGE', key, from or '0', value)
        if expires then
          call('PEXPIREAT', key, expires)
        end
      elseif expires then
        call('SET', key, value, 'PXAT', expires)
      elseif raw == '\0' then
        call('SET', key, value, 'PX', '86400000')
      else
        call('SET', key, value, 'KEEPTTL')
      end
      if values and i <= last then
        written = written or {}
        written[key] = true
      end
      --@remember
    end
  end
end
--@known
return seconds .. ' ' .. micros .. ' ' .. (found and table.concat(found) or raw)

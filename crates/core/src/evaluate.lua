-- The verbs over any number of independent requests, each of one or several limits, all or
-- nothing. The twin of verb.rs: it advances, tests and takes, and answers the states it decided
-- on; everything else about a decision follows from those. A line that begins with `--@` stands
-- for that part of the algorithms in use.
--
-- KEYS[i]    the counter of limit i
-- ARGV[1]    what is asked of the limits, one after the other: how many requests of one limit each
--            ask just this in a row, kind, verb, whether the next limit belongs to the same
--            request, cost, limit, period, what its algorithm adds, and for an undo when it was
--            taken
-- ARGV[2, 3] seconds and microseconds to decide at, if not at the server's own time
-- Answers    seconds, microseconds, and each limit's state as it was found: \0 if there is none
local call, pcall, pack, unpack = redis.call, redis.pcall, struct.pack, struct.unpack
local PEEK, CHECK, TAKE, CHARGE, REFUND, RESET, UNDO = 0, 1, 2, 3, 4, 5, 6
local MAX = 4503599627370496 -- 2^52: the last moment, and the most units in debt
local WIDE = 9007199254740992 -- 2^53: a product beyond it is multiplied and divided in parts

local ARGV = ARGV
local asks, seconds, micros = ARGV[1], ARGV[2], ARGV[3]
local supplied = seconds
if not supplied then
  local time = call('TIME')
  seconds, micros = time[1], time[2]
end
local t = seconds * 1000000 + micros

local KEYS = KEYS
local last = #KEYS
-- Each limit's state, if there are several. Tables with some room from the start are cheaper.
local found = last > 1 and { nil, nil, nil, nil }
local several -- what was found out about each limit of a request but its last
-- A limit: its counter's name, what is stored, and the moment it is decided as at.
local key, raw, now
local kind, verb, more, cost, limit, period, taken
local place, holds = 1, 0 -- where the next thing asked is, and how many more requests ask the last
local values, written -- what was stored under several names, and which of them have changed since
--@values
--@prelude
local i = 1
while i <= last do
  -- Whether every limit fits, and the least that any of them would grant.
  local fit, grant = true, 4294967295
  local first = i
  repeat
    key = KEYS[i]
    if holds == 0 then
      holds, kind, verb, more, cost, limit, period, place = unpack('>I2BBBI4I4I7', asks, place)
      --@argument
      if verb == UNDO then
        taken, place = unpack('>I7', asks, place)
      end
    end
    holds = holds - 1
    if verb == RESET then
      raw = '\0'
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
      end
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
    -- From the last, about which all is still known.
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
      -- What to store, from which byte on, whether its length differs from what is there, and until
      -- which millisecond if that changes; nothing if it is as new.
      local value, from, whole, expires
      if verb == RESET or verb == PEEK then
        value = nil
      elseif verb <= CHARGE then
        if verb ~= TAKE then
          grant = cost
        end
        --@take
        --@pack
      else
        -- An undo gives back only what the units taken then still weigh.
        local new
        --@give_back
        if not new then
          --@pack
        end
      end
      expires = expires and not supplied and string.format('%d', expires)
      if verb == PEEK then
        -- A cost of 0 beside others: stays as it is.
      elseif not value then
        call('DEL', key)
      elseif not whole and raw ~= '\0' then
        -- In place: half the price.
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
    end
  end
end
return seconds .. ' ' .. micros .. ' ' .. (found and table.concat(found) or raw)

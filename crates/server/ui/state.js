// Advances a counter's state from the time of the last response, for the diagrams and the words.

/**
 * The state at `now`, from the state of a response at `at`, which said when the `next` request fits. Whatever the algorithm, it has `left`, the
 * units that fit; `next_us`, the time until one fits, 0 exactly if `left` is not; and `delay_us`, how long a
 * request would wait in a queue.
 */
export function advance(state, at, now, quota, next) {
  if (!state) return fresh(quota, now);
  const to = Math.max(at, now);
  const view = stateAt(state, at, to, quota);
  // The engine's own times are exact to the microsecond; levels are rounded to thousandths.
  const next_us = Math.max(0, (next?.fits_us ?? 0) - (to - at));
  const delay_us = Math.max(0, (next?.delay_us ?? 0) - (to - at));
  return { ...view, next_us, delay_us, left: next_us > 0 ? 0 : Math.max(1, view.left) };
}

function stateAt(state, at, to, quota) {
  switch (state.kind) {
    case 'fixed-window': {
      if (to < state.end_us) return { ...state, left: quota.limit - state.used };
      const start = to - (to % quota.period);
      return { kind: state.kind, start_us: start, end_us: start + quota.period, used: 0, left: quota.limit };
    }
    case 'sliding-window-log': {
      const entries = state.entries.filter((entry) => entry.t_us > to - quota.period);
      const gone = sum(state.entries) - sum(entries);
      const used = Math.max(0, state.used - gone);
      return { kind: state.kind, entries, used, left: quota.limit - used };
    }
    case 'sliding-window-counter': {
      let { start_us: start, previous, current } = state;
      const turns = Math.floor((to - start) / quota.period);
      if (turns === 1) [previous, current] = [current, 0];
      if (turns > 1) [previous, current] = [0, 0];
      start += turns * quota.period;
      const share = (quota.period - (to - start)) / quota.period;
      const weighted = Math.floor((previous * (quota.period - (to - start))) / quota.period);
      const used = weighted + current;
      return { kind: state.kind, start_us: start, end_us: start + quota.period, previous, current, share, weighted, used, left: quota.limit - used };
    }
    case 'token-bucket': {
      const level = Math.min(quota.capacity, state.level_milli / 1000 + drained(quota, to - at));
      return { kind: state.kind, level, left: Math.floor(level + 1e-9) };
    }
    default: {
      const level = Math.max(0, state.level_milli / 1000 - drained(quota, to - at));
      return { kind: state.kind, level, left: Math.floor(quota.capacity - level + 1e-9) };
    }
  }
}

function drained(quota, us) {
  return (quota.limit * us) / quota.period;
}

function sum(entries) {
  return entries.reduce((total, entry) => total + entry.units, 0);
}

/** The state of a new key. */
function fresh(quota, now) {
  const start = now - (now % quota.period);
  const kind = quota.keyword === 'queue' ? 'leaky-bucket-shaping' : quota.algorithm;
  const window = { start_us: start, end_us: start + quota.period };
  const initial = {
    'fixed-window': { ...window, used: 0 },
    'sliding-window-log': { entries: [], used: 0 },
    'sliding-window-counter': { ...window, previous: 0, current: 0 },
    'token-bucket': { level_milli: quota.capacity * 1000 },
  };
  return advance({ kind, ...(initial[kind] ?? { level_milli: 0 }) }, now, now, quota);
}

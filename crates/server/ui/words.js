// What the page says about a limiter: from its state to words, in one place, so that no two of them
// contradict each other.

import { countdown, duration } from './dom.js';

/**
 * The words for a state.
 *
 * `view` is the state now, from `advance`; `last` the latest response or null; `reachable` whether the store
 * decided it. `state` is one of `admits`, `delays`, `refuses` and `unknown`: what a request would get now.
 */
export function words({ view, quota, last, reachable }) {
  const previous = lastWords(last);
  if (!reachable) {
    return { state: 'unknown', badge: 'store down', remaining: 'unknown', next: 'unknown', ...previous };
  }
  const remaining = `${view.left} of ${quota.capacity}`;
  if (view.next_us > 0) {
    return { state: 'refuses', badge: 'refuses', remaining, next: `in ${countdown(view.next_us)}`, ...previous };
  }
  if (view.delay_us > 0) {
    return { state: 'delays', badge: 'delays', remaining, next: `delayed ${countdown(view.delay_us)}`, ...previous };
  }
  return { state: 'admits', badge: 'admits', remaining, next: 'now', ...previous };
}

function lastWords(last) {
  if (!last) return { last: 'none yet', lastKind: '' };
  const [text, lastKind] = result(last);
  return { last: `${last.status} ${text}`, lastKind };
}

/** The result of a response, and its CSS class. */
export function result(answer) {
  if (answer.degraded) return [answer.status === 503 ? 'unavailable' : 'without store', 'degraded'];
  if (!answer.allowed) return ['refused', 'refused'];
  return answer.delay_us > 0 ? [`after ${duration(answer.delay_us)}`, 'delayed'] : ['admitted', 'admitted'];
}

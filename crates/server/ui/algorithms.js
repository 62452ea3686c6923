// The six behaviours: what each is called, starts with and is told of. Words only.

export const BEHAVIOURS = [
  {
    id: 'fixed',
    kind: 'fixed-window',
    name: 'Fixed window',
    quota: 'fixed-window 10/10s',
    line: 'One count a window, then forgotten.',
    strength: 'Two numbers a key, and anybody can be told when the count starts again.',
    catch: 'Twice the limit can pass around a boundary: all of it at the end of one window and all of it again at the start of the next.',
    use: 'Billing periods and daily caps.',
    worst: (q, x) => q.limit * (Math.ceil(x / q.period) + 1),
    formula: 'limit × (⌈span ÷ period⌉ + 1)',
  },
  {
    id: 'log',
    kind: 'sliding-window-log',
    name: 'Sliding log',
    quota: 'sliding-window-log 10/10s',
    line: 'Remembers every request of the last period.',
    strength: 'Exact: no span of one period, wherever it starts, holds more than the limit.',
    catch: 'It pays in memory, 8 bytes and more for every request it remembers. After a burst nothing fits until that burst is one period old.',
    use: 'Logins, and whatever must be exact.',
    worst: (q, x) => q.limit * Math.ceil(x / q.period),
    formula: 'limit × ⌈span ÷ period⌉',
  },
  {
    id: 'counter',
    kind: 'sliding-window-counter',
    name: 'Sliding counter',
    quota: 'sliding-window-counter 10/10s',
    line: 'This window, and what is left of the last.',
    strength: 'Nearly the log, for three numbers a key: the old count fades instead of vanishing.',
    catch: 'It estimates, as if the last window’s requests had come evenly. Who sends the whole limit at once every period is refused some of it.',
    use: 'Most things. It is the default.',
    worst: (q, x) => Math.floor(q.limit * (1 + x / q.period)) + 1,
    formula: 'limit × (1 + span ÷ period) + 1',
  },
  {
    id: 'token',
    kind: 'token-bucket',
    name: 'Token bucket',
    quota: 'token-bucket 10/10s burst 10',
    line: 'Tokens drip in; a request takes one out.',
    strength: 'Silence is banked and may be spent at once: rate and burst are set apart.',
    catch: 'After a silence a whole burst and a period’s refill pass within one period.',
    use: 'APIs whose clients come in bursts.',
    worst: (q, x) => Math.floor(q.capacity + (q.limit * x) / q.period),
    formula: 'burst + limit × span ÷ period',
  },
  {
    id: 'leaky',
    kind: 'leaky-bucket',
    name: 'Leaky bucket, policing',
    quota: 'leaky-bucket 10/10s burst 10',
    line: 'Requests pour in; what would spill is refused.',
    strength: 'The token bucket upside down: starts empty, gives the same answers.',
    catch: 'Only the picture differs. A small burst makes it strict, a large one lets surges through.',
    use: 'The same as the token bucket, seen from the other side.',
    worst: (q, x) => Math.floor(q.capacity + (q.limit * x) / q.period),
    formula: 'burst + limit × span ÷ period',
  },
  {
    id: 'shaping',
    kind: 'leaky-bucket-shaping',
    name: 'Leaky bucket, shaping',
    quota: 'leaky-bucket 10/10s queue 10',
    line: 'Requests queue, and leave at an even pace.',
    strength: 'Whatever comes in, the way out is even: the next place is told as a delay.',
    catch: 'It buys calm with waiting. Callers hold connections open while they stand in line.',
    use: 'Calling something that must not be hurried.',
    worst: (q, x) => Math.floor(q.capacity + (q.limit * x) / q.period),
    formula: 'queue + limit × span ÷ period',
    // What goes ahead after its delay.
    passing: (q, x) => Math.floor((q.limit * x) / q.period) + 1,
  },
];

/** Whether a quota that was read is one of this behaviour. */
export function matches(behaviour, quota) {
  if (behaviour.kind === 'leaky-bucket-shaping') {
    return quota.algorithm === 'leaky-bucket' && quota.word === 'queue';
  }
  return quota.algorithm === behaviour.kind && quota.word !== 'queue';
}

// The six algorithms: names, default quotas, texts and worst cases.

export const ALGORITHMS = [
  {
    id: 'fixed',
    kind: 'fixed-window',
    name: 'Fixed window',
    quota: 'fixed-window 10/10s',
    tagline: 'One count per window, then reset.',
    strength: 'Two numbers per key, and an obvious reset time.',
    weakness: 'Up to twice the limit passes around a boundary: the whole limit at the end of one window and again at the start of the next.',
    use: 'Billing periods and daily caps.',
    worst: (q, x) => q.limit * (Math.ceil(x / q.period) + 1),
    formula: 'limit × (⌈span ÷ period⌉ + 1)',
  },
  {
    id: 'log',
    kind: 'sliding-window-log',
    name: 'Sliding log',
    quota: 'sliding-window-log 10/10s',
    tagline: 'Stores every request of the last period.',
    strength: 'Exact: no span of one period contains more than the limit.',
    weakness: 'Memory: 8 bytes or more per stored request. After a burst, nothing fits until the burst is one period old.',
    use: 'Logins, and anything that must be exact.',
    worst: (q, x) => q.limit * Math.ceil(x / q.period),
    formula: 'limit × ⌈span ÷ period⌉',
  },
  {
    id: 'counter',
    kind: 'sliding-window-counter',
    name: 'Sliding counter',
    quota: 'sliding-window-counter 10/10s',
    tagline: 'Current window plus a share of the previous.',
    strength: 'Nearly as exact as the log, with three numbers per key: the previous count fades out.',
    weakness: 'An estimate that assumes evenly spread requests in the previous window. A client that sends its whole limit at once every period has some of it refused.',
    use: 'Most cases. It is the default.',
    worst: (q, x) => Math.floor(q.limit * (1 + x / q.period)) + 1,
    formula: 'limit × (1 + span ÷ period) + 1',
  },
  {
    id: 'token',
    kind: 'token-bucket',
    name: 'Token bucket',
    quota: 'token-bucket 10/10s burst 10',
    tagline: 'Tokens refill steadily; a request takes one.',
    strength: 'Rate and burst are independent: unused tokens accumulate and can be spent at once.',
    weakness: 'After a pause, a whole burst plus one period’s refill pass within one period.',
    use: 'APIs with bursty clients.',
    worst: (q, x) => Math.floor(q.capacity + (q.limit * x) / q.period),
    formula: 'burst + limit × span ÷ period',
  },
  {
    id: 'leaky',
    kind: 'leaky-bucket',
    name: 'Leaky bucket, policing',
    quota: 'leaky-bucket 10/10s burst 10',
    tagline: 'Requests fill the bucket; an overflow is refused.',
    strength: 'The mirror image of the token bucket: starts empty, decides the same.',
    weakness: 'A small burst is strict, a large one admits surges.',
    use: 'The same as the token bucket.',
    worst: (q, x) => Math.floor(q.capacity + (q.limit * x) / q.period),
    formula: 'burst + limit × span ÷ period',
  },
  {
    id: 'shaping',
    kind: 'leaky-bucket-shaping',
    name: 'Leaky bucket, shaping',
    quota: 'leaky-bucket 10/10s queue 10',
    tagline: 'Requests queue and leave at an even rate.',
    strength: 'Even output for any input: every admitted request gets a delay.',
    weakness: 'Latency: clients keep connections open while they wait.',
    use: 'Protecting a service that cannot handle bursts.',
    worst: (q, x) => Math.floor(q.capacity + (q.limit * x) / q.period),
    formula: 'queue + limit × span ÷ period',
    // The worst case after the delay.
    delayedWorst: (q, x) => Math.floor((q.limit * x) / q.period) + 1,
  },
];

/** Whether a parsed quota has this algorithm. */
export function matches(algorithm, quota) {
  if (algorithm.kind === 'leaky-bucket-shaping') {
    return quota.algorithm === 'leaky-bucket' && quota.keyword === 'queue';
  }
  return quota.algorithm === algorithm.kind && quota.keyword !== 'queue';
}

// The diagram of each algorithm.

import { leakyBucket, tokenBucket } from './diagrams/bucket.js';
import { slidingCounter } from './diagrams/counter.js';
import { slidingLog } from './diagrams/log.js';
import { queue } from './diagrams/queue.js';
import { fixedWindow } from './diagrams/window.js';

export const DIAGRAMS = {
  fixed: fixedWindow,
  log: slidingLog,
  counter: slidingCounter,
  token: tokenBucket,
  leaky: leakyBucket,
  shaping: queue,
};

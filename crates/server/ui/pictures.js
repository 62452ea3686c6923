// Which picture shows which behaviour.

import { leakyBucket, tokenBucket } from './pictures/bucket.js';
import { slidingCounter } from './pictures/counter.js';
import { slidingLog } from './pictures/log.js';
import { queue } from './pictures/queue.js';
import { fixedWindow } from './pictures/window.js';

export const PICTURES = {
  fixed: fixedWindow,
  log: slidingLog,
  counter: slidingCounter,
  token: tokenBucket,
  leaky: leakyBucket,
  shaping: queue,
};

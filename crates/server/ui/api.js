// The playground's HTTP client. One request is in flight at a time; steps queued meanwhile are sent
// together in the next one.

/** An error response. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `the server answered ${status}`);
    this.code = body?.code ?? '';
    this.status = status;
  }
}

/** Steps per request. */
const MAX_STEPS = 500;
/** Queued steps; beyond that, traffic is dropped. */
const MAX_QUEUED = 3000;

async function fetchJson(path, body) {
  const options = body && {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, { ...options, signal: AbortSignal.timeout(30000) });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => null));
  return response.json();
}

/** The store, whether it is reachable, and the bounds of quotas. */
export const about = () => fetchJson('/api/play');

/** Runs a lab on the server and returns its measurements. */
export const lab = (name, settings) => fetchJson(`/api/lab/${name}`, settings);

/** Checks a quota: `{ quota, problem }`, its canonical text or what is wrong with it. */
export const checkQuota = (text) => fetchJson('/api/play/quota', { quota: text });

/** Queues steps and sends them in batches. */
export class StepQueue {
  #clock;
  #queue = [];
  #busy = false;

  constructor(clock) {
    this.#clock = clock;
    /** Called with every response, or with the error. */
    this.onresponse = () => {};
    this.onerror = () => {};
  }

  get full() {
    return this.#queue.length >= MAX_QUEUED;
  }

  /**
   * Sends steps, each `{ card, quota, verb, cost, t_us }`, and calls `then` with each answer. Resolves
   * when all are answered, failed or dropped.
   */
  send(steps, then) {
    const { supplied } = this.#clock;
    return new Promise((resolve) => {
      const room = this.full ? [] : steps;
      if (room.length === 0) resolve();
      room.forEach((step, at) => {
        const last = at === room.length - 1;
        this.#queue.push({ step, supplied, then, done: last ? resolve : () => {} });
      });
      this.#go();
    });
  }

  /** Drops the steps that are not sent yet. */
  clear() {
    this.#queue.splice(0).forEach(({ done }) => done());
  }

  async #go() {
    if (this.#busy) return;
    this.#busy = true;
    while (this.#queue.length > 0) {
      const { supplied } = this.#queue[0];
      const ready = this.#queue.slice(0, MAX_STEPS);
      const other = ready.findIndex((one) => one.supplied !== supplied);
      const batch = this.#queue.splice(0, other < 0 ? ready.length : other);
      const steps = batch.map(({ step: { t_us, ...step } }) => (supplied ? { ...step, t_us } : step));
      try {
        const sent = performance.now();
        const answer = await fetchJson('/api/play', { clock: supplied ? 'supplied' : 'real', steps });
        if (!supplied) this.#clock.sync(answer.now_us, sent, performance.now());
        answer.answers.forEach((one, at) => {
          const { step, then } = batch[at];
          then(one, supplied ? step.t_us : one.now_us ?? answer.now_us, step);
        });
        this.onresponse(answer);
      } catch (error) {
        // Not retried: the steps may have been counted.
        this.onerror(error);
      }
      batch.forEach(({ done }) => done());
    }
    this.#busy = false;
  }
}

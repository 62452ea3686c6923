// What the page asks the server. One question is under way at a time, and what comes up meanwhile
// travels together in the next. Knows the wire; knows nothing of the page.

/** An answer that says what was wrong with the question. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `the server answered ${status}`);
    this.code = body?.code ?? '';
    this.status = status;
  }
}

/** How many steps go into one question, and how many may wait: beyond that, traffic is dropped. */
const MOST_STEPS = 500;
const MOST_WAITING = 3000;

async function ask(path, body) {
  const options = body && {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, { ...options, signal: AbortSignal.timeout(30000) });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => null));
  return response.json();
}

/** Where the counters are, whether they answer, and how large things may be. */
export const about = () => ask('/api/play');

/** Runs a lab on the server and answers what it measured. */
export const lab = (name, settings) => ask(`/api/lab/${name}`, settings);

/** Whether a text is a quota: `{ quota, problem }`, its one canonical text or what is wrong with it. */
export const judge = (text) => ask('/api/play/quota', { quota: text });

/** The line in which steps wait for their turn. */
export class Line {
  #clock;
  #waiting = [];
  #busy = false;

  constructor(clock) {
    this.#clock = clock;
    /** Called with the outcome of every question. */
    this.onheard = () => {};
    this.onlost = () => {};
  }

  get full() {
    return this.#waiting.length >= MOST_WAITING;
  }

  /**
   * Sends steps, each `{ card, quota, verb, cost, t_us }`, and hands each answer to `then`. Resolves
   * when all are answered, lost or forgotten.
   */
  send(steps, then) {
    const { supplied } = this.#clock;
    return new Promise((resolve) => {
      const room = this.full ? [] : steps;
      if (room.length === 0) resolve();
      room.forEach((step, at) => {
        const last = at === room.length - 1;
        this.#waiting.push({ step, supplied, then, done: last ? resolve : () => {} });
      });
      this.#go();
    });
  }

  /** Forgets what has not left yet. */
  clear() {
    this.#waiting.splice(0).forEach(({ done }) => done());
  }

  async #go() {
    if (this.#busy) return;
    this.#busy = true;
    while (this.#waiting.length > 0) {
      const { supplied } = this.#waiting[0];
      const ready = this.#waiting.slice(0, MOST_STEPS);
      const other = ready.findIndex((one) => one.supplied !== supplied);
      const batch = this.#waiting.splice(0, other < 0 ? ready.length : other);
      const steps = batch.map(({ step: { t_us, ...step } }) => (supplied ? { ...step, t_us } : step));
      try {
        const sent = performance.now();
        const answer = await ask('/api/play', { clock: supplied ? 'supplied' : 'real', steps });
        if (!supplied) this.#clock.heard(answer.now_us, sent, performance.now());
        answer.answers.forEach((one, at) => {
          const { step, then } = batch[at];
          then(one, supplied ? step.t_us : one.now_us ?? answer.now_us, step);
        });
        this.onheard(answer);
      } catch (error) {
        // Counted or not, nobody knows: nothing is sent twice.
        this.onlost(error);
      }
      batch.forEach(({ done }) => done());
    }
    this.#busy = false;
  }
}

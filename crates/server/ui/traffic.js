// Generates the same traffic for all cards. Only the retry loop reacts to responses.

/** The bars of the custom pattern, and their duration. */
export const BARS = 20;
const BAR_US = 1e6;
/** Jobs that the retry loop keeps; it drops others. */
const MAX_JOBS = 40;
const RETRY_US = 300000;
/** Approximate maximum of requests per step of time. */
const MAX_ARRIVALS = 2000;

export const SOURCES = {
  steady: { name: 'Steady', about: 'Requests at an even rate' },
  bursty: { name: 'Bursty', about: 'Several requests at once, and a pause' },
  retry: { name: 'Retries', about: 'Jobs that are retried until they are admitted: every 300 ms, or after Retry-After' },
  boundary: { name: 'Boundary', about: 'The whole limit just before a window ends, and again just after' },
  draw: { name: 'Custom', about: 'Twenty seconds that you draw, repeated' },
};

export const OPTIONS = {
  rate: 2, size: 15, gap: 6, jobs: 2, obey: false,
  bars: [0, 4, 1, 0, 0, 0, 8, 8, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 12, 0],
};

export class Traffic {
  #cards;
  #queue;
  #clock;
  #busy = false;
  #jobs = new Map();

  constructor(cards, queue, clock) {
    this.#cards = cards;
    this.#queue = queue;
    this.#clock = clock;
    this.source = 'bursty';
    this.options = structuredClone(OPTIONS);
    this.running = false;
  }

  start() {
    this.running = true;
    this.started = this.#clock.now();
    this.cursor = this.started - 1;
    this.#jobs = new Map(this.#cards.map((card) => [card, []]));
  }

  stop() {
    this.running = false;
    this.#queue.clear();
  }

  /** Sends the requests that are due. */
  async tick() {
    if (!this.running || this.#busy) return;
    this.#busy = true;
    const now = this.#clock.now();
    // After the page was suspended, the missed requests are skipped.
    const late = now - this.cursor > 2e6 && this.#clock.mode !== 'step';
    if (late) this.cursor = now - 1e5;
    while (this.running && this.cursor < now) {
      const to = this.source === 'retry' ? Math.min(now, this.cursor + 1e5) : now;
      await this.#send(this.cursor, to);
      this.cursor = to;
    }
    this.#busy = false;
  }

  /** The time until the next boundary attack, or null for other sources. */
  untilNext(now) {
    if (!this.running || this.source !== 'boundary') return null;
    return Math.max(0, this.#boundary(now) - this.#lead() - now);
  }

  #send(from, to) {
    if (this.source === 'retry') return this.#retry(from, to);
    const steps = this.#arrivals(from, to).flatMap((t) => this.#cards.map((card) => [card, card.step('check', t)]));
    return this.#enqueue(steps);
  }

  #enqueue(pairs, then = () => {}) {
    const owners = new Map(pairs.map(([card, step]) => [step, card]));
    return this.#queue.send(pairs.map(([, step]) => step), (answer, t, step) => {
      owners.get(step).receive(answer, t, step);
      then(owners.get(step), answer, t);
    });
  }

  /** The times of requests after `from` and up to `to`. */
  #arrivals(from, to) {
    const { rate, size, gap, bars } = this.options;
    if (this.source === 'steady') return every(1e6 / rate, this.started, from, to);
    if (this.source === 'bursty') return every(gap * 1e6, this.started, from, to).flatMap((t) => Array(size).fill(t));
    if (this.source === 'draw') {
      return bars.flatMap((count, bar) => every(BARS * BAR_US, this.started + bar * BAR_US, from - BAR_US, to)
        .flatMap((t) => Array.from({ length: count }, (_, at) => Math.round(t + (at * BAR_US) / count))))
        .filter((t) => t > from && t <= to).sort((a, b) => a - b);
    }
    const { limit, period } = this.#cards[0].quota;
    const lead = this.#lead();
    const found = [];
    // A manual step can pass several boundaries.
    for (let boundary = this.#boundary(from); boundary - lead <= to && found.length < MAX_ARRIVALS; boundary += 2 * period) {
      for (let at = 0; at < 2 * limit; at += 1) {
        const part = ((at % limit) + 0.5) / limit;
        const t = Math.round(at < limit ? boundary - lead * (1 - 0.7 * part) : boundary + lead * (0.3 + 0.7 * part));
        if (t > from && t <= to) found.push(t);
      }
    }
    return found;
  }

  /** The duration of the attack before and after a boundary. */
  #lead() {
    return this.#cards[0].quota.period * 0.04;
  }

  /** The boundary of the current or next attack: every second one, so that both windows are empty. */
  #boundary(now) {
    const { period } = this.#cards[0].quota;
    const first = Math.ceil((this.started + 2 * this.#lead()) / period) * period;
    const turns = Math.max(0, Math.ceil((now - this.#lead() - first) / (2 * period)));
    return first + turns * 2 * period;
  }

  #retry(from, to) {
    const due = [];
    for (const [card, jobs] of this.#jobs) {
      for (const t of every(1e6 / this.options.jobs, this.started, from, to)) {
        if (jobs.length < MAX_JOBS) jobs.push(t);
      }
      jobs.sort((a, b) => a - b);
      while (jobs.length > 0 && jobs[0] <= to) due.push([card, card.step('check', jobs.shift())]);
    }
    due.sort(([, a], [, b]) => a.t_us - b.t_us);
    return this.#enqueue(due, (card, answer, t) => {
      if (answer.allowed || answer.retry_after_us === 'never') return;
      // Clients see the header, in whole seconds.
      const retryAfter = Number(answer.headers?.['Retry-After']) * 1e6;
      this.#jobs.get(card).push(t + (this.options.obey && retryAfter > 0 ? retryAfter : RETRY_US));
    });
  }
}

/** Multiples of a step from an origin, after `from` and up to `to`. */
function every(step, origin, from, to) {
  const found = [];
  let at = Math.max(0, Math.floor((from - origin) / step) + 1);
  for (; Math.round(origin + at * step) <= to && found.length < MAX_ARRIVALS; at += 1) {
    if (Math.round(origin + at * step) > from) found.push(Math.round(origin + at * step));
  }
  return found;
}

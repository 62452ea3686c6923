// One traffic for all cards: who comes when. A source turns a span of time into arrivals; only the
// retry loop listens to what it is told. Knows nothing of how cards look.

/** How many bars a drawn traffic has, and how long each is, in microseconds. */
export const BARS = 20;
const BAR_US = 1e6;
/** How many jobs a retrying client keeps; it gives up on others. */
const MOST_JOBS = 40;
const RETRY_US = 300000;
/** How many arrivals a step of time brings at about the most. */
const MOST_ARRIVALS = 2000;

export const SOURCES = {
  steady: { name: 'Steady', words: (o) => `One request every ${Math.round(1000 / o.rate)} ms, whatever the answer.` },
  bursty: { name: 'Bursty', words: (o) => `${o.size} at once, every ${o.gap} s.` },
  retry: {
    name: 'Retry loop',
    words: (o) => o.obey
      ? `A job every ${Math.round(1000 / o.jobs)} ms; who is refused waits as long as Retry-After says.`
      : `A job every ${Math.round(1000 / o.jobs)} ms; who is refused knocks again every 300 ms.`,
  },
  boundary: { name: 'Boundary attack', words: () => 'A whole limit just before a window ends, another just after.' },
  draw: { name: 'Draw your own', words: () => 'Twenty seconds of your own making, over and over.' },
};

export const OPTIONS = {
  rate: 2, size: 15, gap: 6, jobs: 2, obey: false,
  bars: [0, 4, 1, 0, 0, 0, 8, 8, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 12, 0],
};

/** Drives cards from the moment it is started. */
export class Traffic {
  #cards;
  #line;
  #clock;
  #busy = false;
  #jobs = new Map();

  constructor(cards, line, clock) {
    this.#cards = cards;
    this.#line = line;
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
    this.#line.clear();
  }

  /** Sends what is due. Called as often as the page likes. */
  async tick() {
    if (!this.running || this.#busy) return;
    this.#busy = true;
    const now = this.#clock.now();
    // A page that slept does not make up for it.
    const late = now - this.cursor > 2e6 && this.#clock.mode !== 'step';
    if (late) this.cursor = now - 1e5;
    while (this.running && this.cursor < now) {
      const to = this.source === 'retry' ? Math.min(now, this.cursor + 1e5) : now;
      await this.#send(this.cursor, to);
      this.cursor = to;
    }
    this.#busy = false;
  }

  /** When the boundary attack strikes next, from now; null where another source is chosen. */
  untilNext(now) {
    if (!this.running || this.source !== 'boundary') return null;
    return Math.max(0, this.#strike(now) - this.#lead() - now);
  }

  #send(from, to) {
    if (this.source === 'retry') return this.#retry(from, to);
    const steps = this.#arrivals(from, to).flatMap((t) => this.#cards.map((card) => [card, card.step('check', t)]));
    return this.#ask(steps);
  }

  #ask(pairs, then = () => {}) {
    const owners = new Map(pairs.map(([card, step]) => [step, card]));
    return this.#line.send(pairs.map(([, step]) => step), (answer, t, step) => {
      owners.get(step).hear(answer, t, step);
      then(owners.get(step), answer, t);
    });
  }

  /** The instants after `from` and up to `to`. */
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
    // Moved by hand, time can pass several boundaries at once.
    for (let strike = this.#strike(from); strike - lead <= to && found.length < MOST_ARRIVALS; strike += 2 * period) {
      for (let at = 0; at < 2 * limit; at += 1) {
        const part = ((at % limit) + 0.5) / limit;
        const t = Math.round(at < limit ? strike - lead * (1 - 0.7 * part) : strike + lead * (0.3 + 0.7 * part));
        if (t > from && t <= to) found.push(t);
      }
    }
    return found;
  }

  /** How long before and after a boundary the attack lasts. */
  #lead() {
    return this.#cards[0].quota.period * 0.04;
  }

  /** The boundary of the attack under way or next: every second one, so that both windows are empty. */
  #strike(now) {
    const { period } = this.#cards[0].quota;
    const first = Math.ceil((this.started + 2 * this.#lead()) / period) * period;
    const turns = Math.max(0, Math.ceil((now - this.#lead() - first) / (2 * period)));
    return first + turns * 2 * period;
  }

  #retry(from, to) {
    const due = [];
    for (const [card, jobs] of this.#jobs) {
      for (const t of every(1e6 / this.options.jobs, this.started, from, to)) {
        if (jobs.length < MOST_JOBS) jobs.push(t);
      }
      jobs.sort((a, b) => a - b);
      while (jobs.length > 0 && jobs[0] <= to) due.push([card, card.step('check', jobs.shift())]);
    }
    due.sort(([, a], [, b]) => a.t_us - b.t_us);
    return this.#ask(due, (card, answer, t) => {
      if (answer.allowed || answer.retry_after_us === 'never') return;
      // A client has the header to go by, which is in whole seconds.
      const told = Number(answer.headers?.['Retry-After']) * 1e6;
      this.#jobs.get(card).push(t + (this.options.obey && told > 0 ? told : RETRY_US));
    });
  }
}

/** Multiples of a step from an origin, after `from` and up to `to`. */
function every(step, origin, from, to) {
  const found = [];
  let at = Math.max(0, Math.floor((from - origin) / step) + 1);
  for (; Math.round(origin + at * step) <= to && found.length < MOST_ARRIVALS; at += 1) {
    if (Math.round(origin + at * step) > from) found.push(Math.round(origin + at * step));
  }
  return found;
}

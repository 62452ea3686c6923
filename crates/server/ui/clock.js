// The page's time in whole microseconds: the store's, or supplied by the page, slowed or stepped.

export const MODES = ['real', 'slow', 'step'];
export const SPEEDS = [0.5, 0.2, 0.1, 0.05];

export class Clock {
  #mode = 'real';
  #speed = 0.2;
  /** The store's clock minus the page's, and the round trip it was measured with. */
  #offset = Date.now() * 1000 - performance.now() * 1000;
  #roundTrip = Infinity;
  #measuredAt = 0;
  /** Supplied time, at `#since` of the page's clock. */
  #base = 0;
  #since = performance.now();

  get mode() {
    return this.#mode;
  }

  get speed() {
    return this.#speed;
  }

  /** Whether the page supplies the time. */
  get supplied() {
    return this.#mode !== 'real';
  }

  /** Switches the mode. Supplied time starts at zero. */
  choose(mode, speed = this.#speed) {
    if (this.#mode === 'slow' && mode === 'slow') this.#base = this.now();
    else if (mode !== this.#mode) this.#base = 0;
    this.#mode = mode;
    this.#speed = speed;
    this.#since = performance.now();
  }

  now() {
    if (this.#mode === 'real') return Math.round(performance.now() * 1000 + this.#offset);
    if (this.#mode === 'step') return this.#base;
    return this.#base + Math.round((performance.now() - this.#since) * 1000 * this.#speed);
  }

  /** Advances supplied time. */
  step(us) {
    this.#base += us;
  }

  /** Resets supplied time to zero. */
  restart() {
    this.#base = 0;
    this.#since = performance.now();
  }

  /** Measures the offset from a response. The shortest recent round trip is the most exact. */
  sync(now_us, sent, received) {
    const roundTrip = received - sent;
    if (roundTrip > this.#roundTrip && received - this.#measuredAt < 20000) return;
    this.#offset = now_us - ((sent + received) / 2) * 1000;
    this.#roundTrip = roundTrip;
    this.#measuredAt = received;
  }
}

// The page's time: the engine's own, or one that the page supplies, slowed or stepped by hand.
// In whole microseconds. Knows nothing of cards.

export const MODES = ['real', 'slow', 'step'];
export const SPEEDS = [0.5, 0.2, 0.1, 0.05];

export class Clock {
  #mode = 'real';
  #speed = 0.2;
  /** What the engine's clock is ahead of this page's, and how well that is known. */
  #ahead = Date.now() * 1000 - performance.now() * 1000;
  #doubt = Infinity;
  #doubtSince = 0;
  /** Supplied time, as of a moment of the page's own. */
  #base = 0;
  #since = performance.now();

  get mode() {
    return this.#mode;
  }

  get speed() {
    return this.#speed;
  }

  /** Whether the page says what time it is, and not the engine. */
  get supplied() {
    return this.#mode !== 'real';
  }

  /** Goes over to another mode. Supplied time starts at zero. */
  choose(mode, speed = this.#speed) {
    if (this.#mode === 'slow' && mode === 'slow') this.#base = this.now();
    else if (mode !== this.#mode) this.#base = 0;
    this.#mode = mode;
    this.#speed = speed;
    this.#since = performance.now();
  }

  now() {
    if (this.#mode === 'real') return Math.round(performance.now() * 1000 + this.#ahead);
    if (this.#mode === 'step') return this.#base;
    return this.#base + Math.round((performance.now() - this.#since) * 1000 * this.#speed);
  }

  /** Moves supplied time on by hand. */
  step(us) {
    this.#base += us;
  }

  /** Supplied time starts at zero again. */
  restart() {
    this.#base = 0;
    this.#since = performance.now();
  }

  /** Learns the engine's time from an answer. The quickest of late tells it best. */
  heard(now_us, sent, received) {
    const doubt = received - sent;
    if (doubt > this.#doubt && received - this.#doubtSince < 20000) return;
    this.#ahead = now_us - ((sent + received) / 2) * 1000;
    this.#doubt = doubt;
    this.#doubtSince = received;
  }
}

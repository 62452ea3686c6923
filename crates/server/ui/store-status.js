// Shows where the counters are and whether the store answers, by polling and from traffic.

import { about } from './api.js';
import { setText } from './dom.js';

const POLL_INTERVAL_MS = 2000;

export class StoreStatus {
  #element;
  #clock;
  #about = null;
  #server = true;
  #reachable = true;

  constructor(element, clock) {
    this.#element = element;
    this.#clock = clock;
    /** Called when the store or the server is reachable again. */
    this.onrecovery = () => {};
    this.#poll();
    setInterval(() => { if (!document.hidden) this.#poll(); }, POLL_INTERVAL_MS);
  }

  /** Updates the status from a response to traffic. */
  update({ answers }) {
    this.#server = true;
    if (!this.#clock.supplied) this.#setReachable(answers.every((answer) => !answer.degraded));
    this.show();
  }

  /** Updates the status after a failed request. */
  fail(error) {
    // An error response comes from a server that is up.
    this.#server = error?.status !== undefined;
    this.show();
  }

  show() {
    const where = this.#about?.store === 'redis' ? 'Redis' : 'memory';
    const [kind, text] = !this.#server ? ['lost', 'The server does not respond']
      : !this.#reachable ? ['lost', `${where} is down: deciding without it`]
        : this.#clock.supplied ? ['', 'counters in your session, supplied time']
          : ['', `counters in ${where}`];
    setText(this.#element, this.#about || !this.#server ? text : 'connecting');
    this.#element.className = `badge ${kind}`;
  }

  async #poll() {
    try {
      const status = await about();
      const recovered = !this.#server;
      this.#about = status;
      this.#server = true;
      this.#setReachable(status.reachable);
      if (recovered) this.onrecovery();
    } catch (error) {
      this.fail(error);
    }
    this.show();
  }

  #setReachable(reachable) {
    const recovered = reachable && !this.#reachable;
    this.#reachable = reachable;
    if (recovered) this.onrecovery();
  }
}

// Says where the counters are and whether they answer. Asks now and then, and hears from traffic.

import { about } from './api.js';
import { say } from './dom.js';

const EVERY_MS = 2000;

export class Badge {
  #element;
  #clock;
  #known = null;
  #server = true;
  #reachable = true;

  constructor(element, clock) {
    this.#element = element;
    this.#clock = clock;
    /** Called when the store or the server comes back. */
    this.onback = () => {};
    this.#ask();
    setInterval(() => { if (!document.hidden) this.#ask(); }, EVERY_MS);
  }

  /** What an answer to traffic tells. */
  heard({ answers }) {
    this.#server = true;
    if (!this.#clock.supplied) this.#set(answers.every((answer) => !answer.degraded));
    this.show();
  }

  /** Nobody answered. */
  lost(error) {
    // A server that says what is wrong is there.
    this.#server = error?.status !== undefined;
    this.show();
  }

  show() {
    const where = this.#known?.store === 'redis' ? 'Redis' : 'memory';
    const [kind, text] = !this.#server ? ['lost', 'The server does not answer']
      : !this.#reachable ? ['lost', `${where} is lost: deciding without it`]
        : this.#clock.supplied ? ['', 'counting in your session, on your time']
          : ['', `counting in ${where}`];
    say(this.#element, this.#known || !this.#server ? text : 'connecting');
    this.#element.className = `badge ${kind}`;
  }

  async #ask() {
    try {
      const known = await about();
      const back = !this.#server;
      this.#known = known;
      this.#server = true;
      this.#set(known.reachable);
      if (back) this.onback();
    } catch (error) {
      this.lost(error);
    }
    this.show();
  }

  #set(reachable) {
    const back = reachable && !this.#reachable;
    this.#reachable = reachable;
    if (back) this.onback();
  }
}

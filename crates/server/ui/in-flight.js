// Requests in flight under a concurrency limit. The page renews what its requests hold, as a client
// does, until they end or it "crashes".

import { countdown, h, plural, setText } from './dom.js';
import { result } from './words.js';

const QUOTA = 'concurrent 10 for 10s';
const LIMIT = 10;
const HOLD_US = 10e6;
/** Clients renew every third of the hold time. */
const RENEW_MS = 3300;

export class InFlight {
  #queue;
  #clock;
  #announce;
  /** What the server says is held: `{ owner, until_us }`. */
  #holds = [];
  /** The owners whose requests run on this page, and those that were asked for and not answered yet. */
  #own = new Set();
  #pending = new Set();
  #last = null;
  /** Whether the store decided the latest step. */
  reachable = true;

  constructor(queue, clock, announce) {
    this.#queue = queue;
    this.#clock = clock;
    this.#announce = announce;
    this.element = this.#build();
    this.peek();
    setInterval(() => this.#renew(), RENEW_MS);
  }

  #step(verb, owner) {
    return { card: 'in-flight', quota: QUOTA, verb, ...(owner && { owner }) };
  }

  #send(steps, then = () => {}) {
    return this.#queue.send(steps, (answer, t, step) => {
      this.reachable = !answer.degraded;
      then(answer, step.owner);
      if (answer.state) this.#holds = answer.state.holds;
    });
  }

  peek() {
    this.#send([this.#step('peek')]);
  }

  #live(now) {
    return this.#holds.filter((hold) => hold.until_us > now);
  }

  #start() {
    const live = this.#live(this.#clock.now()).map((hold) => hold.owner);
    const taken = new Set([...live, ...this.#pending]);
    // One more than the limit: a request that is refused holds nothing.
    const owner = Array.from({ length: LIMIT + 1 }, (_, at) => at + 1).find((number) => !taken.has(number));
    if (!owner) return;
    this.#pending.add(owner);
    this.#send([this.#step('check', owner)], (answer) => {
      this.#last = answer;
      if (answer.allowed && !answer.degraded) this.#own.add(owner);
      this.#announce(`In flight: ${result(answer)[0]}, ${LIMIT - answer.remaining} of ${LIMIT}`);
    }).then(() => this.#pending.delete(owner));
  }

  #end(owner) {
    this.#own.delete(owner);
    this.#send([this.#step('release', owner)], () => this.#announce(`Request ${owner} ended`));
    const next = [...this.slots].find((slot) => slot.button.isConnected && slot.owner !== owner);
    (next?.button ?? this.startButton).focus();
  }

  #crash() {
    const lost = this.#own.size;
    this.#own.clear();
    this.#announce(`Crashed: nothing renews ${lost} of the holds`);
  }

  #renew() {
    if (this.#own.size === 0) return;
    this.#send([...this.#own].map((owner) => this.#step('renew', owner)), (answer, owner) => {
      // It lapsed: this page was asleep, or it was reset elsewhere.
      if (!answer.allowed && !answer.degraded) this.#own.delete(owner);
    });
  }

  #reset() {
    this.#own.clear();
    this.#last = null;
    this.#send([this.#step('reset')], () => this.#announce('In flight: reset'));
  }

  frame(now) {
    const live = this.#live(now);
    // A hold ended by itself: the server is asked what it says.
    if (live.length < this.#holds.length) {
      this.#holds = live;
      this.peek();
    }
    const crashed = live.filter((hold) => !this.#own.has(hold.owner));
    this.slots.forEach((slot, at) => this.#drawSlot(slot, live.find((hold) => hold.owner === at + 1), now));
    const full = live.length >= LIMIT;
    this.element.dataset.state = !this.reachable ? 'unknown' : full ? 'refuses' : 'admits';
    setText(this.badge, !this.reachable ? 'store down' : full ? 'refuses' : 'admits');
    setText(this.figures.used, this.reachable ? `${live.length} of ${LIMIT}` : 'unknown');
    const ends = Math.max(0, ...crashed.map((hold) => hold.until_us - now));
    setText(this.figures.crashed, crashed.length === 0 ? 'none' : `${crashed.length}, ${countdown(ends)} left`);
    const [text, kind] = this.#last ? result(this.#last) : ['none yet', ''];
    setText(this.figures.last, this.#last ? `${this.#last.status} ${text}` : text);
    this.figures.last.className = kind;
    setText(this.conclusion, !this.reachable ? 'The store does not answer: what is shown is the last known state.'
      : crashed.length > 0 ? `${plural(crashed.length, 'hold')} without a client. ${crashed.length === 1 ? 'It counts' : 'They count'} until the hold time is over: 10 s after the last renewal.`
        : full ? 'All places are taken: the next request is refused until one ends.'
          : live.length > 0 ? 'These are renewed while they run. End one, or let the client crash.' : 'Nothing is in flight.');
    this.crashButton.disabled = this.#own.size === 0;
  }

  #drawSlot(slot, hold, now) {
    const own = hold && this.#own.has(hold.owner);
    slot.element.className = !hold ? 'free' : own ? 'held' : 'crashed';
    slot.owner = hold?.owner;
    const content = !hold ? slot.free : own ? slot.button : slot.crashed;
    if (slot.element.firstElementChild !== content) slot.element.replaceChildren(content);
    if (!hold) return;
    const left = hold.until_us - now;
    for (const time of content.querySelectorAll('.left')) setText(time, own ? 'End' : countdown(left));
    content.querySelector('i').style.width = `${Math.min(100, (left / HOLD_US) * 100)}%`;
  }

  #build() {
    this.slots = Array.from({ length: LIMIT }, (_, at) => {
      const parts = () => [h('b', {}, `r${at + 1}`), h('span', { class: 'left' }), h('i', { 'aria-hidden': 'true' })];
      return {
        element: h('li'), owner: undefined, free: h('span', {}, 'free'), crashed: h('span', { title: 'Nothing renews it: it ends by itself' }, ...parts()),
        button: h('button', { type: 'button', 'aria-label': `End request ${at + 1}`, onclick: () => this.#end(at + 1) }, ...parts()),
      };
    });
    this.conclusion = h('p', { class: 'conclusion' });
    this.figures = { used: h('dd'), crashed: h('dd'), last: h('dd') };
    this.badge = h('p', { class: 'status-badge', title: 'What a request would get now' });
    this.startButton = h('button', { type: 'button', class: 'primary', onclick: () => this.#start() }, 'Start request');
    this.crashButton = h('button', { type: 'button', onclick: () => this.#crash() }, 'Crash');
    const reset = h('button', { type: 'button', class: 'plain', 'aria-label': 'Reset: In flight', onclick: () => this.#reset() }, 'Reset');
    const figure = (label, value) => h('div', {}, h('dt', {}, label), value);
    return h('article', { class: 'lab', id: 'lab-in-flight', 'aria-labelledby': 'name-in-flight' },
      h('header', {}, h('h3', { id: 'name-in-flight' }, 'In flight'), this.badge),
      h('p', {}, 'At most ten requests at once, however long each takes. And if a client dies in the middle?'),
      h('p', { class: 'muted' }, h('code', {}, QUOTA), ': this page renews what its requests hold every third of the 10 s. After a crash nothing does.'),
      h('div', { class: 'lab-form' }, this.startButton, this.crashButton, reset),
      h('div', { class: 'result' }, h('ol', { class: 'holds', 'aria-label': 'Requests in flight' }, ...this.slots.map((slot) => slot.element)),
        h('dl', { class: 'figures' }, figure('In flight', this.figures.used), figure('Crashed', this.figures.crashed), figure('Last response', this.figures.last)), this.conclusion));
  }
}

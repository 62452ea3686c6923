// One behaviour on the page: its picture, its settings, its buttons, its answers. Sends through the
// stage it stands on; knows nothing of the other cards.

import { countdown, duration, h, say } from './dom.js';
import { Journal, verdict } from './response-log.js';
import { PICTURES } from './diagrams.js';
import { Settings } from './quota-editor.js';
import { advance } from './state.js';
import { tabs } from './tabs.js';

/** How much of the past is kept for pictures and charts. */
const MOST_HISTORY = 4000;
/** How often a held button sends. */
const STREAM_MS = 125;
/** What cards on supplied time are called by besides: such a time begins again with each page. */
const LOAD = crypto.getRandomValues(new Uint32Array(1))[0].toString(16).padStart(8, '0');

export class Card {
  #stage;
  #answer = null;
  #at = 0;
  /** What the engine last told of the counter, and of when that is. */
  #state = null;
  #stateAt = 0;
  #stream = 0;

  /** `stage` has `clock`, `line`, `announce(text)` and `changed()`. */
  constructor(behaviour, text, stage) {
    this.behaviour = behaviour;
    this.#stage = stage;
    this.history = [];
    this.counts = { admitted: 0, refused: 0 };
    this.journal = new Journal();
    this.settings = new Settings(behaviour, text, () => {
      // What another limit let in says nothing of this one.
      this.forget();
      this.peek();
      stage.changed();
    });
    this.picture = PICTURES[behaviour.id]();
    this.element = this.#build();
  }

  get quota() {
    return this.settings.quota;
  }

  /** A step for the engine. */
  step(verb, t_us = this.#stage.clock.now()) {
    const card = this.#stage.clock.supplied ? `${this.behaviour.id}-${LOAD}` : this.behaviour.id;
    return { card, quota: this.settings.text, cost: 1, verb, t_us };
  }

  /** Sends so many requests at once. */
  send(count) {
    let [yes, no] = [0, 0];
    this.#stage.line.send(Array.from({ length: count }, () => this.step('check')), (answer, t, step) => {
      this.hear(answer, t, step);
      answer.allowed ? (yes += 1) : (no += 1);
      if (yes + no === count) this.#announce(yes, no, answer);
    });
  }

  peek() {
    this.#stage.line.send([this.step('peek')], (answer, t, step) => {
      if (step.quota === this.settings.text) this.#keep(answer, t);
    });
  }

  reset() {
    this.forget();
    this.#stage.line.send([this.step('reset')], (answer, t, step) => {
      this.forget();
      if (step.quota === this.settings.text) this.#keep(answer, t);
    });
  }

  /** Shows nothing of the past any more. */
  forget() {
    this.history = [];
    this.counts = { admitted: 0, refused: 0 };
    this.#answer = this.#state = null;
    this.journal.clear();
    this.#mark('', '');
  }

  /** Takes an answer to a step of this card; one under a quota that it no longer has comes too late. */
  hear(answer, t, step) {
    if (step.quota !== this.settings.text) return;
    this.#keep(answer, t);
    this.history.push({ t, allowed: answer.allowed, delay: answer.delay_us ?? 0 });
    if (this.history.length > MOST_HISTORY) this.history.splice(0, MOST_HISTORY / 4);
    this.counts[answer.allowed ? 'admitted' : 'refused'] += 1;
    this.journal.add(answer, t, this.#stage.clock);
    const [word, kind] = verdict(answer);
    this.#mark(`${answer.status} ${word}`, kind);
  }

  /** Draws the state as of now. */
  frame(now) {
    const { quota } = this;
    const lost = this.#answer?.degraded;
    // Without its store it shows what it knew last, dimmed.
    const view = advance(this.#state, this.#stateAt, now, quota);
    const words = this.picture.draw(view, quota, now, this.history, this.#state);
    this.picture.element.setAttribute('aria-label', lost ? `Unknown, as the store does not answer. Last known: ${words}` : words);
    say(this.figures.remaining, lost ? 'unknown' : String(Math.max(0, view.left)));
    say(this.figures.retry, this.#retry(now));
    say(this.figures.delay, this.#answer?.delay_us ? duration(this.#answer.delay_us) : 'none');
    say(this.tally, `${this.counts.admitted} in, ${this.counts.refused} refused`);
    this.element.classList.toggle('lost', Boolean(lost));
    this.journal.draw();
  }

  #retry(now) {
    const wait = this.#answer?.retry_after_us;
    if (wait === 'never') return 'never';
    if (!wait) return 'none';
    const left = this.#at + wait - now;
    return left > 0 ? countdown(left) : 'now';
  }

  #keep(answer, t) {
    this.#answer = answer;
    this.#at = t;
    if (answer.state) [this.#state, this.#stateAt] = [answer.state, t];
  }

  #mark(text, kind) {
    say(this.stamp, text);
    this.stamp.className = `stamp ${kind}`;
  }

  #announce(yes, no, last) {
    const wait = last.retry_after_us > 0 ? `, try again in ${duration(last.retry_after_us)}` : '';
    const held = last.delay_us > 0 ? `, the last one waits ${duration(last.delay_us)}` : '';
    this.#stage.announce(`${this.behaviour.name}: ${yes} admitted, ${no} refused, ${last.remaining ?? 'unknown'} left${wait}${held}`);
  }

  #build() {
    const { id, name, line, strength, catch: price, use, formula } = this.behaviour;
    this.figures = { remaining: h('dd'), retry: h('dd'), delay: h('dd') };
    this.tally = h('p', { class: 'tally' });
    this.stamp = h('p', { class: 'stamp' });
    const figure = (label, value) => h('div', {}, h('dt', {}, label), value);
    const hold = this.#holdButton();
    const about = [
      h('p', {}, h('b', {}, 'Good: '), strength), h('p', {}, h('b', {}, 'Price: '), price), h('p', {}, h('b', {}, 'For: '), use),
      h('p', { class: 'quiet' }, `Worst case over any span: ${formula}`),
    ];
    const press = (label, kind, onclick) => h('button', { type: 'button', class: kind, onclick, 'aria-label': `${label}: ${name}` }, label);
    return h('article', { class: 'card', id: `card-${id}`, 'aria-labelledby': `name-${id}` },
      h('header', {}, h('h3', { id: `name-${id}` }, name), this.stamp),
      h('p', { class: 'line' }, line),
      this.picture.element,
      h('dl', { class: 'figures' }, figure('Remaining', this.figures.remaining), figure('Retry after', this.figures.retry), figure('Delay', this.figures.delay)),
      h('div', { class: 'actions' }, press('Send', 'primary', () => this.send(1)), press('Burst 10', '', () => this.send(10)), hold,
        press('Reset', 'plain', () => { this.reset(); this.#stage.announce(`${name} reset`); })),
      this.settings.field,
      tabs(id, name, [['Trade-off', ...about], ['Settings', this.settings.form], ['Headers', this.journal.headers], ['Log', this.tally, this.journal.table]],
        () => this.journal.look()));
  }

  /** Sends while it is held, by pointer or by key. */
  #holdButton() {
    const start = () => {
      if (this.#stream) return;
      this.send(1);
      this.#stream = setInterval(() => this.send(1), STREAM_MS);
      button.setAttribute('aria-pressed', 'true');
    };
    const stop = () => {
      clearInterval(this.#stream);
      this.#stream = 0;
      button.setAttribute('aria-pressed', 'false');
    };
    const key = (event) => event.key === ' ' || event.key === 'Enter';
    const button = h('button', {
      type: 'button', class: 'hold', 'aria-pressed': 'false', 'aria-label': `Hold to stream: ${this.behaviour.name}`,
      title: 'Sends 8 a second while you hold it',
      onpointerdown: start, onpointerup: stop, onpointerleave: stop, onpointercancel: stop, onblur: stop,
      oncontextmenu: (event) => event.preventDefault(),
      onkeydown: (event) => { if (key(event)) { event.preventDefault(); start(); } },
      onkeyup: (event) => { if (key(event)) { event.preventDefault(); stop(); } },
      // Pressed by neither pointer nor key, as by voice: nothing is held, so one is sent.
      onclick: (event) => { if (event.detail === 0) this.send(1); },
    }, 'Hold', h('span', { class: 'more' }, ' to stream'));
    return button;
  }
}

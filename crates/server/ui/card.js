// One algorithm on the page: diagram, quota, buttons and responses.

import { countdown, duration, h, setText } from './dom.js';
import { ResponseLog, result } from './response-log.js';
import { DIAGRAMS } from './diagrams.js';
import { QuotaEditor } from './quota-editor.js';
import { advance } from './state.js';
import { tabs } from './tabs.js';

/** Answers kept for diagrams and charts. */
const MAX_HISTORY = 4000;
/** The interval of requests while the button is held. */
const STREAM_INTERVAL_MS = 125;
/** Part of the names of cards on supplied time, which restarts with every page load. */
const PAGE_ID = crypto.getRandomValues(new Uint32Array(1))[0].toString(16).padStart(8, '0');

export class Card {
  #app;
  #answer = null;
  #at = 0;
  /** The latest state from the server, and its time. */
  #state = null;
  #stateAt = 0;
  #stream = 0;

  /** `app` has `clock`, `queue`, `announce(text)` and `changed()`. */
  constructor(algorithm, text, app) {
    this.algorithm = algorithm;
    this.#app = app;
    this.history = [];
    this.counts = { admitted: 0, refused: 0 };
    this.responseLog = new ResponseLog();
    this.editor = new QuotaEditor(algorithm, text, () => {
      // The history is that of another quota.
      this.clear();
      this.peek();
      app.changed();
    });
    this.diagram = DIAGRAMS[algorithm.id]();
    this.element = this.#build();
  }

  get quota() {
    return this.editor.quota;
  }

  step(verb, t_us = this.#app.clock.now()) {
    const card = this.#app.clock.supplied ? `${this.algorithm.id}-${PAGE_ID}` : this.algorithm.id;
    return { card, quota: this.editor.text, cost: 1, verb, t_us };
  }

  /** Sends a burst. */
  send(count) {
    let [yes, no] = [0, 0];
    this.#app.queue.send(Array.from({ length: count }, () => this.step('check')), (answer, t, step) => {
      this.receive(answer, t, step);
      answer.allowed ? (yes += 1) : (no += 1);
      if (yes + no === count) this.#announce(yes, no, answer);
    });
  }

  peek() {
    this.#app.queue.send([this.step('peek')], (answer, t, step) => {
      if (step.quota === this.editor.text) this.#update(answer, t);
    });
  }

  reset() {
    this.clear();
    this.#app.queue.send([this.step('reset')], (answer, t, step) => {
      this.clear();
      if (step.quota === this.editor.text) this.#update(answer, t);
    });
  }

  /** Clears the history. */
  clear() {
    this.history = [];
    this.counts = { admitted: 0, refused: 0 };
    this.#answer = this.#state = null;
    this.responseLog.clear();
    this.#setStatus('', '');
  }

  /** Handles an answer; ignored if the quota has changed since. */
  receive(answer, t, step) {
    if (step.quota !== this.editor.text) return;
    this.#update(answer, t);
    this.history.push({ t, allowed: answer.allowed, delay: answer.delay_us ?? 0 });
    if (this.history.length > MAX_HISTORY) this.history.splice(0, MAX_HISTORY / 4);
    this.counts[answer.allowed ? 'admitted' : 'refused'] += 1;
    this.responseLog.add(answer, t, this.#app.clock);
    const [text, kind] = result(answer);
    this.#setStatus(`${answer.status} ${text}`, kind);
  }

  /** Draws the current state. */
  frame(now) {
    const { quota } = this;
    const degraded = this.#answer?.degraded;
    // Without the store, the last known state is shown.
    const view = advance(this.#state, this.#stateAt, now, quota);
    const label = this.diagram.draw(view, quota, now, this.history, this.#state);
    this.diagram.element.setAttribute('aria-label', degraded ? `Unknown: the store does not answer. Last known: ${label}` : label);
    setText(this.figures.remaining, degraded ? 'unknown' : String(Math.max(0, view.left)));
    setText(this.figures.retry, this.#retry(now));
    setText(this.figures.delay, this.#answer?.delay_us ? duration(this.#answer.delay_us) : 'none');
    setText(this.countsLine, `${this.counts.admitted} admitted, ${this.counts.refused} refused`);
    this.element.classList.toggle('stale', Boolean(degraded));
    this.responseLog.draw();
  }

  #retry(now) {
    const wait = this.#answer?.retry_after_us;
    if (wait === 'never') return 'never';
    if (!wait) return 'none';
    const left = this.#at + wait - now;
    return left > 0 ? countdown(left) : 'now';
  }

  #update(answer, t) {
    this.#answer = answer;
    this.#at = t;
    if (answer.state) [this.#state, this.#stateAt] = [answer.state, t];
  }

  #setStatus(text, kind) {
    setText(this.statusBadge, text);
    this.statusBadge.className = `status-badge ${kind}`;
  }

  #announce(yes, no, last) {
    const wait = last.retry_after_us > 0 ? `, try again in ${duration(last.retry_after_us)}` : '';
    const delay = last.delay_us > 0 ? `, the last one waits ${duration(last.delay_us)}` : '';
    this.#app.announce(`${this.algorithm.name}: ${yes} admitted, ${no} refused, ${last.remaining ?? 'unknown'} left${wait}${delay}`);
  }

  #build() {
    const { id, name, tagline, strength, weakness, use, formula } = this.algorithm;
    this.figures = { remaining: h('dd'), retry: h('dd'), delay: h('dd') };
    this.countsLine = h('p', { class: 'counts-line' });
    this.statusBadge = h('p', { class: 'status-badge' });
    const figure = (label, value) => h('div', {}, h('dt', {}, label), value);
    const hold = this.#holdButton();
    const about = [
      h('p', {}, h('b', {}, 'Strength: '), strength), h('p', {}, h('b', {}, 'Weakness: '), weakness), h('p', {}, h('b', {}, 'Use for: '), use),
      h('p', { class: 'muted' }, `Worst case over any span: ${formula}`),
    ];
    const press = (label, kind, onclick) => h('button', { type: 'button', class: kind, onclick, 'aria-label': `${label}: ${name}` }, label);
    return h('article', { class: 'card', id: `card-${id}`, 'aria-labelledby': `name-${id}` },
      h('header', {}, h('h3', { id: `name-${id}` }, name), this.statusBadge),
      h('p', { class: 'tagline' }, tagline),
      this.diagram.element,
      h('dl', { class: 'figures' }, figure('Remaining', this.figures.remaining), figure('Retry after', this.figures.retry), figure('Delay', this.figures.delay)),
      h('div', { class: 'actions' }, press('Send', 'primary', () => this.send(1)), press('Burst 10', '', () => this.send(10)), hold,
        press('Reset', 'plain', () => { this.reset(); this.#app.announce(`${name} reset`); })),
      this.editor.field,
      tabs(id, name, [['Trade-off', ...about], ['Settings', this.editor.form], ['Headers', this.responseLog.headers], ['Log', this.countsLine, this.responseLog.table]],
        () => this.responseLog.refresh()));
  }

  /** A button that sends while it is held, by pointer or key. */
  #holdButton() {
    const start = () => {
      if (this.#stream) return;
      this.send(1);
      this.#stream = setInterval(() => this.send(1), STREAM_INTERVAL_MS);
      button.setAttribute('aria-pressed', 'true');
    };
    const stop = () => {
      clearInterval(this.#stream);
      this.#stream = 0;
      button.setAttribute('aria-pressed', 'false');
    };
    const key = (event) => event.key === ' ' || event.key === 'Enter';
    const button = h('button', {
      type: 'button', class: 'hold', 'aria-pressed': 'false', 'aria-label': `Hold to stream: ${this.algorithm.name}`,
      title: 'Sends 8 requests per second while held',
      onpointerdown: start, onpointerup: stop, onpointerleave: stop, onpointercancel: stop, onblur: stop,
      oncontextmenu: (event) => event.preventDefault(),
      onkeydown: (event) => { if (key(event)) { event.preventDefault(); start(); } },
      onkeyup: (event) => { if (key(event)) { event.preventDefault(); stop(); } },
      // Activated by neither pointer nor key, as by voice control: one request.
      onclick: (event) => { if (event.detail === 0) this.send(1); },
    }, 'Hold', h('span', { class: 'more' }, ' to stream'));
    return button;
  }
}

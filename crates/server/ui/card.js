// One algorithm on the page: picture, quota, state in words and buttons, and below it the details on
// demand.

import { duration, h, s, setText } from './dom.js';
import { ResponseLog } from './response-log.js';
import { DIAGRAMS } from './diagrams.js';
import { QuotaEditor } from './quota-editor.js';
import { advance } from './state.js';
import { tabs } from './tabs.js';
import { UseThis } from './use-this.js';
import { words } from './words.js';

/** Answers kept for diagrams and charts. */
const MAX_HISTORY = 4000;
/** The interval of requests while the button is held. */
const STREAM_INTERVAL_MS = 125;
/** Part of the names of cards on supplied time, which restarts with every page load. */
const PAGE_ID = crypto.getRandomValues(new Uint32Array(1))[0].toString(16).padStart(8, '0');

export class Card {
  #app;
  /** The latest response to a request, null before the first. */
  #last = null;
  /** Whether the store decided the latest step. */
  #reachable = true;
  /** The latest state from the server, its time, and when the next request fits by then. */
  #state = null;
  #stateAt = 0;
  #next = null;
  #stream = 0;

  /** `app` has `clock`, `queue`, `announce(text)`, `changed()` and `opened(card)`. */
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
      this.useThis.show(this.editor.canonical);
      app.changed();
    });
    this.useThis = new UseThis(algorithm.id, algorithm.name, this.editor.canonical, app.announce);
    this.diagram = DIAGRAMS[algorithm.id]();
    this.elements = [this.#build(), this.#buildDetails()];
    this.open(false);
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
    this.#last = this.#state = null;
    this.#reachable = true;
    this.responseLog.clear();
  }

  /** Handles an answer; ignored if the quota has changed since. */
  receive(answer, t, step) {
    if (step.quota !== this.editor.text) return;
    this.#update(answer, t);
    this.#last = answer;
    this.history.push({ t, allowed: answer.allowed, delay: answer.delay_us ?? 0 });
    if (this.history.length > MAX_HISTORY) this.history.splice(0, MAX_HISTORY / 4);
    this.counts[answer.allowed ? 'admitted' : 'refused'] += 1;
    this.responseLog.add(answer, t, this.#app.clock);
  }

  /** Draws the current state. */
  frame(now) {
    const { quota } = this;
    // Without the store, the last known state is shown.
    const view = advance(this.#state, this.#stateAt, now, quota, this.#next);
    const label = this.diagram.draw(view, quota, now, this.history, this.#state);
    const said = words({ view, quota, last: this.#last, reachable: this.#reachable });
    this.diagram.element.setAttribute('aria-label', this.#reachable ? label : `Unknown: the store does not answer. Last known: ${label}`);
    setText(this.statusBadge, said.badge);
    setText(this.figures.remaining, said.remaining);
    setText(this.figures.next, said.next);
    setText(this.figures.last, said.last);
    this.figures.last.className = said.lastKind;
    this.card.dataset.state = said.state;
    setText(this.countsLine, `${this.counts.admitted} admitted, ${this.counts.refused} refused`);
    this.responseLog.draw();
  }

  /** Opens or closes the details. */
  open(open) {
    this.isOpen = open;
    this.details.hidden = !open;
    this.card.classList.toggle('open', open);
    this.detailsButton.setAttribute('aria-expanded', String(open));
    if (open) this.responseLog.refresh();
  }

  #update(answer, t) {
    this.#reachable = !answer.degraded;
    if (answer.state) [this.#state, this.#stateAt, this.#next] = [answer.state, t, answer.next];
  }

  #announce(yes, no, last) {
    const wait = last.retry_after_us > 0 ? `, try again in ${duration(last.retry_after_us)}` : '';
    const delay = last.delay_us > 0 ? `, the last one waits ${duration(last.delay_us)}` : '';
    this.#app.announce(`${this.algorithm.name}: ${yes} admitted, ${no} refused, ${last.remaining ?? 'unknown'} left${wait}${delay}`);
  }

  #build() {
    const { id, name, tagline } = this.algorithm;
    this.figures = { remaining: h('dd'), next: h('dd'), last: h('dd') };
    this.statusBadge = h('p', { class: 'status-badge', title: 'What a request would get now' });
    const figure = (label, value) => h('div', {}, h('dt', {}, label), value);
    const press = (label, kind, onclick) => h('button', { type: 'button', class: kind, onclick, 'aria-label': `${label}: ${name}` }, label);
    this.detailsButton = press('Details', 'plain disclosure', () => this.#app.opened(this, !this.isOpen));
    this.detailsButton.setAttribute('aria-controls', `details-${id}`);
    this.card = h('article', { class: 'card', id: `card-${id}`, 'aria-labelledby': `name-${id}` },
      h('header', {}, h('h3', { id: `name-${id}`, title: tagline }, name), this.statusBadge),
      h('div', { class: 'quota' }, this.editor.field, this.#useButton()),
      this.editor.error,
      this.diagram.element,
      h('dl', { class: 'figures' }, figure('Remaining', this.figures.remaining), figure('Next admitted', this.figures.next), figure('Last response', this.figures.last)),
      h('div', { class: 'actions' }, press('Send', 'primary', () => this.send(1)), press('Burst 10', '', () => this.send(10)), this.#holdButton(),
        press('Reset', 'plain', () => { this.reset(); this.#app.announce(`${name} reset`); }), this.detailsButton));
    return this.card;
  }

  #useButton() {
    const { name } = this.algorithm;
    const icon = s('svg', { viewBox: '0 0 20 20', 'aria-hidden': 'true' }, s('path', { d: 'M7 5.5 2.5 10 7 14.5M13 5.5l4.5 4.5-4.5 4.5' }));
    return h('button', { type: 'button', class: 'small use', 'aria-label': `Use this: ${name}`, title: 'This quota as YAML, Rust and curl', onclick: () => {
      this.#app.opened(this, true);
      this.useThis.focus();
    } }, icon, h('span', {}, 'Use this'));
  }

  #buildDetails() {
    const { id, name, tagline, strength, weakness, use, formula } = this.algorithm;
    this.countsLine = h('p', { class: 'counts-line' });
    const close = h('button', { type: 'button', class: 'plain small', 'aria-label': `Close: ${name}`, onclick: () => {
      this.#app.opened(this, false);
      this.detailsButton.focus();
    } }, 'Close');
    const block = (title, kind, ...content) => h('div', { class: `block ${kind}` }, h('h4', {}, title), ...content);
    this.details = h('section', { class: 'details', id: `details-${id}`, 'aria-label': `${name}: details` },
      h('header', {}, h('h3', {}, name), h('p', { class: 'muted' }, tagline), close),
      block('Settings', '', this.editor.form),
      block('Trade-off', 'trade-off', h('p', {}, h('b', {}, 'Strength: '), strength), h('p', {}, h('b', {}, 'Weakness: '), weakness),
        h('p', {}, h('b', {}, 'Use for: '), use), h('p', { class: 'muted' }, `Guaranteed maximum over any span: ${formula}`)),
      block('Responses', '', tabs(id, `${name}: responses`, [['Log', this.countsLine, this.responseLog.table], ['Headers', this.responseLog.headers]],
        () => this.responseLog.refresh())),
      block('Use this', '', this.useThis.element));
    return this.details;
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
    }, 'Hold');
    return button;
  }
}

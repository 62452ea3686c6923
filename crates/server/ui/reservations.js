// Costs that are known only later: an estimate is reserved, the actual cost settled.

import { advance } from './state.js';
import { countdown, h, s, setAttributes, setText } from './dom.js';
import { parse } from './quota.js';
import { result } from './words.js';

const QUOTA = 'token-bucket 300/min burst 1000';
const ESTIMATE = 200;
const ACTUALS = [80, 200, 500];
/** Rows of the list of requests. */
const MAX_ROWS = 5;
/** The picture: from this debt to the burst. */
const [DEBT, WIDE, TALL] = [500, 360, 34];

export class Reservations {
  #queue;
  #clock;
  #announce;
  #quota = parse(QUOTA);
  #state = null;
  #stateAt = 0;
  #sent = Promise.resolve();
  /** Whether the store decided the latest step. */
  reachable = true;
  /** Newest first: `{ id, name, at, effect, actual }`; without an effect it is open. */
  #requests = [];
  /** Ids are the page's own: another page load must not repeat them. */
  #id = crypto.getRandomValues(new Uint32Array(1))[0];
  #count = 0;

  constructor(queue, clock, announce) {
    this.#queue = queue;
    this.#clock = clock;
    this.#announce = announce;
    this.element = this.#build();
    this.peek();
  }

  peek() {
    this.#send([this.#step('peek', 0)]);
  }

  #step(verb, cost, id) {
    return { card: 'reserve', quota: QUOTA, verb, cost, ...(id !== undefined && { id }) };
  }

  /** Sends steps one after the other: a state comes only with the last step of a request to the server. */
  #send(steps, then = () => {}) {
    this.#sent = this.#sent.then(() => this.#queue.send(steps, (answer, t) => {
      this.reachable = !answer.degraded;
      then(answer, t);
      if (answer.state) [this.#state, this.#stateAt] = [answer.state, t];
    }));
  }

  /** The exact level at a time, in units; negative in debt. */
  #level(now) {
    return advance(this.#state, this.#stateAt, now, this.#quota, null).level;
  }

  get #open() {
    return this.#requests.filter((request) => !request.effect);
  }

  #reserve() {
    this.#id = (this.#id + 1) >>> 0;
    const id = this.#id;
    this.#send([this.#step('reserve', ESTIMATE, id)], (answer, t) => {
      if (answer.allowed && !answer.degraded) {
        this.#count += 1;
        this.#requests.unshift({ id, name: `r${this.#count}`, at: t });
        this.#drawRequests();
      }
      this.#announce(`Reserve ${ESTIMATE}: ${result(answer)[0]}`);
    });
  }

  #settle(actual) {
    const request = this.#open.at(-1);
    if (!request) return;
    request.actual = actual;
    request.effect = 'settling';
    this.#send([this.#step('settle', actual, request.id)], (answer, t) => {
      // Measured: what the level is, less what it would be.
      const back = answer.state ? Math.round(answer.state.level_milli / 1000 - this.#level(t)) : 0;
      request.effect = answer.degraded ? 'not settled: store down' : effect(actual, answer.granted, back);
      this.#drawRequests();
      this.#announce(`${request.name}: reserved ${ESTIMATE}, actual ${actual}: ${request.effect}`);
    });
  }

  #lose() {
    const request = this.#open.at(-1);
    if (!request) return;
    request.effect = `${ESTIMATE} stay charged`;
    request.actual = 'unknown';
    this.#drawRequests();
    this.#announce(`${request.name}: ${request.effect}`);
  }

  #reset() {
    // A reset forgets no ids: settled at their estimate, they are forgotten too.
    const open = this.#open.map((request) => this.#step('settle', ESTIMATE, request.id));
    [this.#requests, this.#count] = [[], 0];
    this.#drawRequests();
    this.#send([...open, this.#step('reset', 0)], () => this.#announce('Reserve and settle: reset'));
  }

  frame(now) {
    if (!this.#state) return;
    const level = this.#level(now);
    const open = this.#open;
    // What would come back if the open ones cost nothing: as much of each as has not refilled since.
    const refilled = (request) => ((now - request.at) * this.#quota.limit) / this.#quota.period;
    const held = open.reduce((sum, request) => sum + Math.max(0, ESTIMATE - refilled(request)), 0);
    const { capacity } = this.#quota;
    const x = (units) => ((Math.max(-DEBT, Math.min(capacity, units)) + DEBT) / (capacity + DEBT)) * WIDE;
    const part = (element, from, to) => setAttributes(element, { x: x(from), width: Math.max(0, x(to) - x(from)) });
    part(this.bars.available, 0, level);
    part(this.bars.held, level, Math.min(capacity, level + held));
    part(this.bars.debt, level, 0);
    const wait = ((ESTIMATE - level) * this.#quota.period) / this.#quota.limit;
    const refuses = wait > 0;
    const whole = Math.floor(level + 1e-9);
    const balance = whole < 0 ? `${-whole} in debt` : `${whole} of ${capacity}`;
    this.element.dataset.state = !this.reachable ? 'unknown' : refuses ? 'refuses' : 'admits';
    setText(this.badge, !this.reachable ? 'store down' : refuses ? 'refuses' : 'admits');
    setText(this.figures.balance, this.reachable ? balance : 'unknown');
    setText(this.figures.open, open.length === 0 ? 'none' : `${open.length} × ${ESTIMATE}`);
    setText(this.figures.next, !this.reachable ? 'unknown' : refuses ? `in ${countdown(wait)}` : 'now');
    this.picture.setAttribute('aria-label', `${this.reachable ? '' : 'Last known: '}${balance}, ${open.length} open`);
    setText(this.conclusion, !this.reachable ? 'The store does not answer: what is shown is the last known state.'
      : whole < 0 ? 'More was used than there was. The debt refills first; until then everything is refused.'
        : open.length > 0 ? `Open: up to ${Math.round(held)} come back if they turn out to cost nothing. What is never settled stays charged.`
          : this.#requests.length > 0 ? 'Nothing is open.' : 'Reserve a few, then settle them below, at and above the estimate.');
    for (const button of this.settleButtons) button.disabled = open.length === 0;
  }

  #drawRequests() {
    const rows = this.#requests.slice(0, MAX_ROWS).map(({ name, actual, effect: text }) => h('tr', {},
      h('th', { scope: 'row' }, name), ...[ESTIMATE, actual ?? '–', text ?? 'open'].map((cell) => h('td', {}, String(cell)))));
    this.rows.replaceChildren(...rows);
    this.table.hidden = rows.length === 0;
  }

  #build() {
    const bar = (kind) => s('rect', { y: 4, height: TALL - 16, class: kind });
    this.bars = { available: bar('admit'), held: bar('held-back'), debt: bar('refuse') };
    const zero = (DEBT / (this.#quota.capacity + DEBT)) * WIDE;
    const label = (at, anchor, text) => s('text', { x: at, y: TALL, class: 'label', 'text-anchor': anchor }, text);
    this.picture = s('svg', { viewBox: `0 0 ${WIDE} ${TALL}`, class: 'diagram', role: 'img' },
      s('rect', { x: 0, y: 4, width: WIDE, height: TALL - 16, rx: 3, class: 'faint' }), ...Object.values(this.bars),
      s('line', { x1: zero, x2: zero, y1: 0, y2: TALL - 9, class: 'cursor' }),
      label(0, 'start', 'debt'), label(zero, 'middle', '0'), label(WIDE, 'end', String(this.#quota.capacity)));
    this.conclusion = h('p', { class: 'conclusion' });
    this.figures = { balance: h('dd'), open: h('dd'), next: h('dd') };
    this.badge = h('p', { class: 'status-badge', title: `What a reservation of ${ESTIMATE} would get now` });
    this.settleButtons = [
      ...ACTUALS.map((actual) => h('button', { type: 'button', class: 'small', 'aria-label': `Settle the oldest at ${actual}`, onclick: () => this.#settle(actual) }, String(actual))),
      h('button', { type: 'button', class: 'small', 'aria-label': 'Never settle the oldest', onclick: () => this.#lose() }, 'never'),
    ];
    this.rows = h('tbody');
    this.table = h('table', { class: 'plain-table', hidden: true },
      h('thead', {}, h('tr', {}, ...['Request', 'Reserved', 'Actual', 'Effect'].map((name) => h('th', { scope: 'col' }, name)))), this.rows);
    const figure = (name, value) => h('div', {}, h('dt', {}, name), value);
    return h('article', { class: 'lab', id: 'lab-reserve', 'aria-labelledby': 'name-reserve' },
      h('header', {}, h('h3', { id: 'name-reserve' }, 'Reserve and settle'), this.badge),
      h('p', {}, 'What a request costs is known when its answer is there, like the tokens of a language model. So an estimate is reserved, and the actual cost settled.'),
      h('p', { class: 'muted' }, h('code', {}, QUOTA), `, an estimate of ${ESTIMATE} each.`),
      h('div', { class: 'lab-form' }, h('button', { type: 'button', class: 'primary', onclick: () => this.#reserve() }, `Reserve ${ESTIMATE}`),
        h('button', { type: 'button', class: 'plain', 'aria-label': 'Reset: Reserve and settle', onclick: () => this.#reset() }, 'Reset'),
        h('span', { class: 'settle' }, 'Settle at', ...this.settleButtons)),
      h('div', { class: 'result' }, this.picture,
        h('dl', { class: 'figures' }, figure('Available', this.figures.balance), figure('Open', this.figures.open), figure('Next 200 fit', this.figures.next)),
        this.table, this.conclusion));
  }
}

/** What a settle did: units charged, or given back. */
function effect(actual, charged, back) {
  if (charged > 0) return `${charged} more charged`;
  if (actual >= ESTIMATE) return 'as estimated';
  const less = ESTIMATE - actual;
  if (back <= 0) return 'nothing left to give back';
  return back >= less ? `${less} given back` : `${back} given back, ${less - back} had refilled`;
}

// The latest responses of a card as a table, and the headers of the last one.

import { duration, h, setText } from './dom.js';
import { result } from './words.js';

const MAX_ROWS = 60;
const REASONS = { 200: 'OK', 429: 'Too Many Requests', 503: 'Service Unavailable' };

export class ResponseLog {
  #rows = [];
  #stale = true;

  constructor() {
    const head = ['Time', 'Result', 'Remaining', 'Wait'].map((name) => h('th', { scope: 'col' }, name));
    this.body = h('tbody');
    this.table = h('div', { class: 'log', tabindex: 0, role: 'region', 'aria-label': 'The last 60 responses' },
      h('table', {}, h('thead', {}, h('tr', {}, ...head)), this.body));
    this.headers = h('pre', { class: 'headers mono', tabindex: 0, 'aria-label': 'Headers of the last response' },
      'Send a request to see its response headers.');
  }

  add(answer, t, clock) {
    this.#rows.unshift({ answer, t, time: clock.supplied ? `${(t / 1e6).toFixed(3)} s` : timeOfDay(t) });
    this.#rows.length = Math.min(this.#rows.length, MAX_ROWS);
    this.#stale = true;
  }

  clear() {
    this.#rows = [];
    this.#stale = true;
  }

  /** Updates the visible tab. */
  draw() {
    if (!this.#stale) return;
    if (this.table.offsetParent) {
      this.body.replaceChildren(...this.#rows.map(row));
      if (!this.#rows.length) this.body.append(h('tr', {}, h('td', { colspan: 4 }, 'No requests yet.')));
    } else if (this.headers.offsetParent) {
      const last = this.#rows[0]?.answer;
      setText(this.headers, last ? httpHead(last) : 'Send a request to see its response headers.');
    } else {
      return;
    }
    this.#stale = false;
  }

  refresh() {
    this.#stale = true;
    this.draw();
  }
}

function row({ answer, t, time }) {
  const [text, kind] = result(answer);
  const wait = answer.delay_us > 0 ? duration(answer.delay_us) : waitOf(answer);
  // The exact values, for tests.
  const exact = { 't-us': t, allowed: answer.allowed, remaining: answer.remaining, 'retry-after-us': answer.retry_after_us, 'delay-us': answer.delay_us };
  const data = Object.entries(exact).map(([name, value]) => [`data-${name}`, String(value)]);
  return h('tr', Object.fromEntries(data),
    h('td', {}, time), h('td', { class: kind }, `${answer.status} ${text}`), h('td', {}, String(answer.remaining ?? '–')), h('td', {}, wait));
}

function waitOf({ retry_after_us: wait }) {
  if (wait === 'never') return 'never fits';
  return wait ? duration(wait) : '–';
}

function httpHead({ status, headers }) {
  const lines = Object.entries(headers ?? {}).map(([name, value]) => `${name}: ${value}`);
  return [`HTTP/1.1 ${status} ${REASONS[status] ?? ''}`.trim(), ...lines].join('\n');
}

function timeOfDay(us) {
  const date = new Date(us / 1000);
  const two = (number, digits = 2) => String(number).padStart(digits, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

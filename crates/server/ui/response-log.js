// What a card answered lately: the last 60 as a table, and the exact headers of the last. Shows what
// it is given.

import { duration, h, say } from './dom.js';

const KEPT = 60;
const REASONS = { 200: 'OK', 429: 'Too Many Requests', 503: 'Service Unavailable' };

export class Journal {
  #rows = [];
  #stale = true;

  constructor() {
    const head = ['Time', 'Answer', 'Left', 'Wait'].map((name) => h('th', { scope: 'col' }, name));
    this.body = h('tbody');
    this.table = h('div', { class: 'log', tabindex: 0, role: 'region', 'aria-label': 'The last 60 answers' },
      h('table', {}, h('thead', {}, h('tr', {}, ...head)), this.body));
    this.headers = h('pre', { class: 'headers mono', tabindex: 0, 'aria-label': 'Headers of the last answer' },
      'Send a request to see what its client is told.');
  }

  add(answer, t, clock) {
    this.#rows.unshift({ answer, t, time: clock.supplied ? `${(t / 1e6).toFixed(3)} s` : timeOfDay(t) });
    this.#rows.length = Math.min(this.#rows.length, KEPT);
    this.#stale = true;
  }

  clear() {
    this.#rows = [];
    this.#stale = true;
  }

  /** Writes what is in sight. */
  draw() {
    if (!this.#stale) return;
    if (this.table.offsetParent) {
      this.body.replaceChildren(...this.#rows.map(row));
      if (!this.#rows.length) this.body.append(h('tr', {}, h('td', { colspan: 4 }, 'Nothing yet.')));
    } else if (this.headers.offsetParent) {
      const last = this.#rows[0]?.answer;
      say(this.headers, last ? told(last) : 'Send a request to see what its client is told.');
    } else {
      return;
    }
    this.#stale = false;
  }

  /** Another part came into sight. */
  look() {
    this.#stale = true;
    this.draw();
  }
}

/** The verdict in one word, and its colour. */
export function verdict(answer) {
  if (answer.degraded) return answer.allowed ? ['admitted blindly', 'degraded'] : ['unavailable', 'degraded'];
  if (!answer.allowed) return ['refused', 'refused'];
  return answer.delay_us > 0 ? ['delayed', 'delayed'] : ['admitted', 'admitted'];
}

function row({ answer, t, time }) {
  const [word, kind] = verdict(answer);
  const wait = answer.delay_us > 0 ? duration(answer.delay_us) : waitOf(answer);
  // The exact figures, for whoever wants more digits than are shown.
  const exact = { 't-us': t, allowed: answer.allowed, remaining: answer.remaining, 'retry-after-us': answer.retry_after_us, 'delay-us': answer.delay_us };
  const data = Object.entries(exact).map(([name, value]) => [`data-${name}`, String(value)]);
  return h('tr', Object.fromEntries(data),
    h('td', {}, time), h('td', { class: kind }, word), h('td', {}, String(answer.remaining ?? '–')), h('td', {}, wait));
}

function waitOf({ retry_after_us: wait }) {
  if (wait === 'never') return 'never fits';
  return wait ? duration(wait) : '–';
}

function told({ status, headers }) {
  const lines = Object.entries(headers ?? {}).map(([name, value]) => `${name}: ${value}`);
  return [`HTTP/1.1 ${status} ${REASONS[status] ?? ''}`.trim(), ...lines].join('\n');
}

function timeOfDay(us) {
  const date = new Date(us / 1000);
  const two = (number, digits = 2) => String(number).padStart(digits, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

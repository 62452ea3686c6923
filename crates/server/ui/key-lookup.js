// Looks up the counters of a key on the admin API: typed, or chosen from a list.

import { duration, h } from './dom.js';

/** As many letters of a key are repeated on the page. */
const MAX_SHOWN = 60;

export class KeyLookup {
  #input;
  #output;
  #latest = 0;

  constructor(form, input, output) {
    this.#input = input;
    this.#output = output;
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const typed = input.value.trim();
      // Commas separate the parts of a key and are not encoded.
      this.#lookUp(typed, typed.split(',').map((part) => encodeURIComponent(part.trim())).join(','));
    });
  }

  /** Looks up a key in the form that the lists show, and scrolls there. */
  show(shown) {
    this.#input.value = shown;
    this.#lookUp(shown, shown.replaceAll('#', '%23')).then(() => {
      this.#output.scrollIntoView({ block: 'nearest' });
      this.#input.focus({ preventScroll: true });
    });
  }

  async #lookUp(key, path) {
    this.#latest += 1;
    const own = this.#latest;
    const content = await answer(key, path);
    if (own === this.#latest) this.#output.replaceChildren(...content);
  }
}

async function answer(key, path) {
  const message = (text, kind = '') => [h('p', { class: kind }, text)];
  let response;
  try {
    response = await fetch(`/admin/keys/${path}`, { signal: AbortSignal.timeout(10000) });
  } catch {
    return message('The server does not respond.', 'error');
  }
  const body = await response.json().catch(() => null);
  if (response.status === 401) return message('From another machine, this needs the admin token: use curl.', 'error');
  if (response.status === 414 || response.status === 431) return message(`The key is too long for a request: ${key.length.toLocaleString('en')} letters.`, 'error');
  if (!response.ok) return message(sentence(body?.detail ?? `the server responded with ${response.status}`), 'error');
  if (body.counters.length === 0) return message('No rule has a key with this number of parts.');
  const several = body.counters.some((one) => one.source);
  const head = ['Rule', ...(several ? ['Key read from'] : []), 'Limit', 'Remaining', 'Next admitted', 'Unused again'];
  const rows = body.counters.map((one) => {
    const cells = [
      ...(several ? [['', one.source ?? '']] : []), ['mono', one.quota],
      [one.allowed ? 'admitted' : 'refused', `${one.remaining} of ${one.limit}${one.reset_after_us ? '' : ', unused'}`],
      ['', one.retry_after_us ? `in ${duration(one.retry_after_us)}` : 'now'], ['', one.reset_after_us ? `in ${duration(one.reset_after_us)}` : 'now'],
    ];
    return h('tr', {}, h('th', { scope: 'row' }, one.rule ?? 'No rule'),
      ...cells.map(([kind, text], at) => h('td', { class: kind, 'data-label': head[at + 1] }, text)));
  });
  return [
    h('p', { class: 'found-key' }, h('span', { class: 'mono' }, key.length > MAX_SHOWN ? `${key.slice(0, MAX_SHOWN)}…` : key),
      key.length > MAX_SHOWN ? ` (${key.length.toLocaleString('en')} letters)` : '', key === body.key ? '' : h('span', { class: 'muted' }, ` shown as ${body.key}`)),
    h('div', { class: 'scroll' }, h('table', { class: 'plain-table' },
      h('thead', {}, h('tr', {}, ...head.map((name) => h('th', { scope: 'col' }, name)))), h('tbody', {}, ...rows))),
    ...ambiguous(body.counters).map((rule) => h('p', { class: 'muted' },
      `${rule} is listed more than once: it reads its key from several places, and the same text from two of them is two keys with counters of their own.`)),
  ];
}

/** Rules with counters of one limit for several sources. */
function ambiguous(counters) {
  const pairs = counters.filter((one) => one.source).map((one) => `${one.rule}\n${one.limit_name}`);
  return [...new Set(pairs.filter((pair, at) => pairs.indexOf(pair) !== at).map((pair) => pair.split('\n')[0]))];
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

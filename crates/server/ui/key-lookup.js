// Looks up the counters of a key on the admin API: typed, or chosen from a list.

import { callers, hasCallers } from './callers.js';
import { duration, h, setText } from './dom.js';

/** As many letters of a key are repeated on the page. */
const MAX_SHOWN = 60;
/** How often a result with members or holds is read again. */
const REFRESH_MS = 2000;

export class KeyLookup {
  #form;
  #input;
  #output;
  #latest = 0;
  #timer = 0;

  /** The form has the inputs `key`, and `member` which is shown when a limit is shared; `status` is announced. */
  constructor(form, output, status) {
    this.#form = form;
    this.#input = form.elements.key;
    this.#output = output;
    this.status = status;
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const typed = this.#input.value.trim();
      // Commas separate the parts of a key and are not encoded.
      this.#lookUp(typed, typed.split(',').map((part) => encodeURIComponent(part.trim())).join(','));
    });
  }

  get #member() {
    const input = this.#form.elements.member;
    return input.closest('[hidden]') ? '' : input.value.trim();
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
    clearTimeout(this.#timer);
    this.#latest += 1;
    const own = this.#latest;
    const content = await answer(key, path, this.#member);
    if (own !== this.#latest) return;
    this.#show(content);
    setText(this.status, this.#output.querySelector('table') ? `Found: ${summary(this.#output)}` : this.#output.textContent);
    if (content.unavailable || content.counters?.some(hasCallers)) this.#refreshLater(own, key, path);
  }

  #show({ elements, counters }) {
    this.#output.replaceChildren(...elements);
    if (counters) this.#form.elements.member.parentElement.hidden = !counters.some((one) => one.share);
  }

  /** Members come and go: a result that has some follows them, but announces only the first. So does one without the store. */
  #refreshLater(own, key, path) {
    this.#timer = setTimeout(async () => {
      if (!document.hidden && getSelection().isCollapsed) {
        const content = await answer(key, path, this.#member);
        if (own !== this.#latest) return;
        this.#show(content);
      }
      this.#refreshLater(own, key, path);
    }, REFRESH_MS);
  }
}

/** What a result says, for those who do not see it. */
function summary(output) {
  return [...output.querySelectorAll('.found tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent).join(' ')).join('; ');
}

async function answer(key, path, member) {
  const message = (text, kind = '') => ({ elements: [h('p', { class: kind }, text)] });
  let response;
  try {
    const query = member ? `?member=${encodeURIComponent(member)}` : '';
    response = await fetch(`/admin/keys/${path}${query}`, { signal: AbortSignal.timeout(10000) });
  } catch {
    return message('The server does not respond.', 'error');
  }
  const body = await response.json().catch(() => null);
  if (response.status === 401) return message('From another machine, this needs the admin token: use curl.', 'error');
  if (response.status === 414 || response.status === 431) return message(`The key is too long for a request: ${key.length.toLocaleString('en')} letters.`, 'error');
  if (response.status === 503) return { ...message(sentence(body?.detail ?? 'the store did not answer'), 'error'), unavailable: true };
  if (!response.ok) return message(sentence(body?.detail ?? `the server responded with ${response.status}`), 'error');
  if (body.counters.length === 0) return message(key ? 'No rule has a key with this number of parts.' : 'Every rule has a key.');
  const several = body.counters.some((one) => one.source);
  const head = ['Rule', ...(several ? ['Key read from'] : []), 'Limit', 'Remaining', 'Next admitted', 'Unused again'];
  const rows = body.counters.map((one) => {
    const cells = [
      ...(several ? [['', one.source ?? '']] : []), ['mono', one.quota],
      [one.allowed ? 'admitted' : 'refused', `${one.remaining} of ${one.limit}${one.share?.members ? ' for another member' : ''}${one.reset_after_us ? '' : ', unused'}`],
      ['', one.retry_after_us ? `${one.holds ? 'at most ' : 'in '}${duration(one.retry_after_us)}` : 'now'], ['', one.reset_after_us ? `in ${duration(one.reset_after_us)}` : 'now'],
    ];
    return h('tr', {}, h('th', { scope: 'row' }, one.rule ?? 'No rule'),
      ...cells.map(([kind, text], at) => h('td', { class: kind, 'data-label': head[at + 1] }, text)));
  });
  const short = key.length > MAX_SHOWN ? `${key.slice(0, MAX_SHOWN)}…` : key;
  const elements = [
    h('p', { class: 'found-key' }, key ? h('span', { class: 'mono' }, short) : 'Rules without a key: all clients together',
      key.length > MAX_SHOWN ? ` (${key.length.toLocaleString('en')} letters)` : '', key === body.key || !key ? '' : h('span', { class: 'muted' }, ` shown as ${body.key}`)),
    h('div', { class: 'scroll' }, h('table', { class: 'plain-table found' },
      h('thead', {}, h('tr', {}, ...head.map((name) => h('th', { scope: 'col' }, name)))), h('tbody', {}, ...rows))),
    ...ambiguous(body.counters).map((rule) => h('p', { class: 'muted' },
      `${rule} is listed more than once: it reads its key from several places, and the same text from two of them is two keys with counters of their own.`)),
    ...body.counters.filter(hasCallers).flatMap((one) => callers(one, member)),
  ];
  return { elements, counters: body.counters };
}

/** Rules with counters of one limit for several sources. */
function ambiguous(counters) {
  const pairs = counters.filter((one) => one.source).map((one) => `${one.rule}\n${one.limit_name}`);
  return [...new Set(pairs.filter((pair, at) => pairs.indexOf(pair) !== at).map((pair) => pair.split('\n')[0]))];
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

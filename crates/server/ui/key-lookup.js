// Looks up the counters of a key on the admin API.

import { duration, h } from './dom.js';

export function keyLookup(form, input, output) {
  let latest = 0;
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    latest += 1;
    const own = latest;
    const content = await lookUp(input.value.trim());
    if (own === latest) output.replaceChildren(...content);
  });
}

async function lookUp(key) {
  // Commas separate the parts of a key and are not encoded.
  const path = key.split(',').map((part) => encodeURIComponent(part.trim())).join(',');
  const message = (text, kind = '') => [h('p', { class: kind }, text)];
  let response;
  try {
    response = await fetch(`/admin/keys/${path}`, { signal: AbortSignal.timeout(10000) });
  } catch {
    return message('The server does not respond.', 'error');
  }
  const body = await response.json().catch(() => null);
  if (response.status === 401) return message('From another machine, this needs the admin token: use curl.', 'error');
  if (!response.ok) return message(body?.detail ?? `the server responded with ${response.status}`, 'error');
  if (body.counters.length === 0) return message('No rule has a key with this number of parts.');
  const head = ['Rule', 'Quota', 'Remaining', 'Retry after', 'Reset after'];
  const all = body.counters.map((one) => [
    one.rule ?? 'No rule', one.quota, `${one.remaining} of ${one.limit}${one.allowed ? '' : ', refused'}`,
    one.retry_after_us ? duration(one.retry_after_us) : '–', one.reset_after_us ? duration(one.reset_after_us) : '–', one.allowed,
  ]);
  // A rule may extract the same key in several ways: identical rows are shown once.
  const rows = [...new Map(all.map((one) => [one.join('\n'), one])).values()].map(([rule, quota, left, retry, reset, allowed]) => h('tr', {},
    h('th', { scope: 'row' }, rule), h('td', { class: 'mono' }, quota), h('td', { class: allowed ? 'admitted' : 'refused' }, left), h('td', {}, retry), h('td', {}, reset)));
  return [h('div', { class: 'scroll' }, h('table', { class: 'plain-table' }, h('caption', {}, `In the logs: ${body.key}`),
    h('thead', {}, h('tr', {}, ...head.map((name) => h('th', { scope: 'col' }, name)))), h('tbody', {}, ...rows)))];
}

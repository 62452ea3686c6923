// Looks one key up on the admin API and shows where it stands before every rule. Changes nothing.

import { duration, h } from './dom.js';

export function keyFinder(form, input, place) {
  let asked = 0;
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    asked += 1;
    const own = asked;
    const shown = await look(input.value.trim());
    if (own === asked) place.replaceChildren(...shown);
  });
}

async function look(key) {
  // A comma stands between the parts of a key and goes as it is.
  const path = key.split(',').map((part) => encodeURIComponent(part.trim())).join(',');
  const words = (text, kind = '') => [h('p', { class: kind }, text)];
  let response;
  try {
    response = await fetch(`/admin/keys/${path}`, { signal: AbortSignal.timeout(10000) });
  } catch {
    return words('The server does not answer.', 'error');
  }
  const body = await response.json().catch(() => null);
  if (response.status === 401) return words('Away from the server’s own machine this needs the admin token: ask with curl.', 'error');
  if (!response.ok) return words(body?.detail ?? `the server answered ${response.status}`, 'error');
  if (body.counters.length === 0) return words('No rule counts by a key of this shape.');
  const head = ['Rule', 'Quota', 'Left', 'Retry after', 'As new in'];
  const all = body.counters.map((one) => [
    one.rule ?? 'asked without a rule', one.quota, `${one.remaining} of ${one.limit}${one.allowed ? '' : ', refused'}`,
    one.retry_after_us ? duration(one.retry_after_us) : '–', one.reset_after_us ? duration(one.reset_after_us) : 'now', one.allowed,
  ]);
  // A rule may find the same key in several places: what reads the same is said once.
  const rows = [...new Map(all.map((one) => [one.join('\n'), one])).values()].map(([rule, quota, left, retry, reset, allowed]) => h('tr', {},
    h('th', { scope: 'row' }, rule), h('td', { class: 'mono' }, quota), h('td', { class: allowed ? 'admitted' : 'refused' }, left), h('td', {}, retry), h('td', {}, reset)));
  return [h('div', { class: 'scroll' }, h('table', { class: 'plain-table' }, h('caption', {}, `Known in the logs as ${body.key}`),
    h('thead', {}, h('tr', {}, ...head.map((name) => h('th', { scope: 'col' }, name)))), h('tbody', {}, ...rows)))];
}

// The live view of the running server, updated every second. Read-only.

import { History, KINDS, barChart, kinds } from './stacked-bars.js';
import { h, setText } from './dom.js';
import { KeyLookup } from './key-lookup.js';
import { NO_RULE, RulesTable, count, rate } from './rules-table.js';
import { subscribe } from './events.js';

const byId = (id) => document.getElementById(id);
const past = new History();
const chart = barChart('Decisions per second in the last three minutes');
const command = h('code', { class: 'mono', tabindex: 0 });
const idle = h('div', { class: 'idle', hidden: true },
  h('p', {}, h('b', {}, 'No requests in the last five minutes.'), ' Send one, and watch it appear here:'), command,
  h('p', { class: 'muted' }, 'Requests of the playground are not among these: its counters are its own.'));
byId('bands').append(chart.element, idle);
const figures = Object.fromEntries(KINDS.map(([kind, colour]) => {
  const value = h('dd');
  byId('rates').append(h('div', {}, h('dt', {}, h('i', { class: `dot ${colour}` }), capital(kind)), value));
  return [kind, value];
}));
const lookup = new KeyLookup(byId('search'), byId('found'), byId('found-status'));
const rules = new RulesTable(byId('rule-rows'), lookup);

/** The time of the latest event, and whether the stream is there. */
let [latest, connected] = [0, true];
let killSwitch = 'off';
subscribe({
  onevent(event) {
    latest = event.t_ms;
    show(event);
  },
  onstate(is) {
    connected = is;
    setText(byId('badge'), connected ? 'live' : 'lost');
    byId('badge').className = `badge ${connected ? '' : 'lost'}`;
    document.body.classList.toggle('stale', !connected);
    notice();
  },
});

function show(event) {
  const sum = Object.fromEntries(KINDS.map(([kind]) => [kind, 0]));
  for (const rule of event.rules) {
    const own = kinds(rule.per_second);
    for (const [kind] of KINDS) sum[kind] += own[kind];
  }
  past.push(event.t_ms, sum);
  chart.draw(past.entries);
  // The page knows only what happened since it was opened.
  const isIdle = past.idle && event.top.hottest.length === 0;
  idle.hidden = !isIdle;
  chart.element.classList.toggle('empty', isIdle);
  setText(command, event.try ?? '');
  for (const [kind] of KINDS) {
    setText(figures[kind], rate(sum[kind]));
    figures[kind].classList.toggle('zero', sum[kind] === 0);
  }
  facts(event);
  rules.draw(event.rules, event.t_ms, event.top);
  const number = event.rules_in_force ?? event.rules.length;
  setText(byId('rules-count'), `${number} active${event.rules.length < number ? ', the busiest are shown' : ''}. Click a rule for its settings.`);
  top('top-refused', event.top.refused, 'No refusals in the last five minutes.');
  top('top-hottest', event.top.hottest, 'No requests in the last five minutes.');
  killSwitch = event.kill_switch ?? 'off';
  notice();
  byId('playground-link').hidden = !event.playground;
  if (event.playground) byId('playground-link').href = event.playground;
}

function facts({ store, keys, shared, reloads, reload_errors: failed, uptime_s: uptime, version }) {
  const down = store.breaker === 'open';
  const list = [
    ['Counters in', store.kind === 'redis' ? 'Redis' : 'memory', ''],
    ['Breaker', down ? 'open: deciding without the store' : 'closed', down ? 'refused' : ''],
    ['Latency, median', time(store.p50_us), ''],
    ['Latency, p99', time(store.p99_us), ''],
    ['Errors', count(store.errors), store.errors ? 'refused' : 'zero'],
    ['Live keys', store.kind === 'redis' ? 'in Redis' : count(keys), ''],
    ['Shared budgets', count(shared), shared ? 'refused' : 'zero'],
    ['Reloads', `${count(reloads)}${failed ? `, ${failed} failed` : ''}`, failed ? 'refused' : reloads ? '' : 'zero'],
    ['Version, up', `${version ?? '?'}, ${since(uptime ?? 0)}`, ''],
  ];
  const element = byId('facts');
  if (element.childElementCount === 0) element.append(...list.map(([name]) => h('div', {}, h('dt', {}, name), h('dd'))));
  list.forEach(([, value, kind], at) => {
    const cell = element.children[at].lastElementChild;
    setText(cell, value);
    cell.className = kind;
  });
}

/** A list of keys; each can be pressed to look it up. Kept between events, so that focus is. */
function top(id, list, emptyText) {
  const element = byId(id);
  if (list.length === 0) {
    element.replaceChildren(h('p', { class: 'muted' }, emptyText));
    return;
  }
  if (!element.querySelector('tbody')) element.replaceChildren(h('table', { class: 'bars keys' }, h('tbody')));
  const body = element.querySelector('tbody');
  while (body.childElementCount > list.length) body.lastElementChild.remove();
  while (body.childElementCount < list.length) body.append(keyRow(id === 'top-refused' ? 'over' : ''));
  const max = Math.max(...list.map((one) => one.count));
  list.forEach((one, at) => {
    const row = body.children[at];
    row.dataset.key = one.key;
    const [button, origin] = row.querySelectorAll('button, .origin');
    const name = one.key || 'all clients';
    setText(button, name);
    button.title = `Look up ${name}`;
    setText(origin, `${one.rule === NO_RULE ? 'No rule' : one.rule}${one.source ? `, as ${one.source}` : ''}`);
    setText(row.querySelector('.figure'), count(one.count));
    row.querySelector('i').style.width = `${(one.count / max) * 100}%`;
  });
}

function keyRow(kind) {
  const row = h('tr', { class: 'clickable', onclick: () => lookup.show(row.dataset.key) },
    h('th', { scope: 'row' }, h('button', { type: 'button', class: 'link mono' }), h('span', { class: 'origin' })),
    h('td', { class: 'figure' }), h('td', { 'aria-hidden': 'true' }, h('span', { class: 'track' }, h('i', { class: kind }))));
  return row;
}

function notice() {
  const when = latest ? ` What is shown is from ${new Date(latest).toLocaleTimeString()}.` : '';
  const text = !connected ? `Connection lost; reconnecting.${when}`
    : killSwitch === 'off' ? '' : `The kill switch is set to ${killSwitch}: rules are not applied.`;
  setText(byId('notice'), text);
  byId('notice').hidden = !text;
}

function time(us) {
  if (us === null || us === undefined) return 'no requests';
  return us < 1000 ? `${Math.round(us)} µs` : `${Math.round(us / 100) / 10} ms`;
}

function since(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

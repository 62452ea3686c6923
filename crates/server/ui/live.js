// The live view of the running server, updated every second. Read-only.

import { KINDS, SECONDS, stackedBars, kinds } from './stacked-bars.js';
import { h, setText } from './dom.js';
import { keyLookup } from './key-lookup.js';
import { NO_RULE, RulesTable, count, rate } from './rules-table.js';
import { subscribe } from './events.js';

const byId = (id) => document.getElementById(id);
const past = [];
const chart = stackedBars(720, 150, 'Decisions per second, the last three minutes');
const peak = h('p', { class: 'muted axis-note' });
byId('bands').append(chart.element, peak);
const figures = Object.fromEntries(KINDS.map(([kind, colour]) => {
  const value = h('dd');
  byId('rates').append(h('div', {}, h('dt', {}, h('i', { class: `dot ${colour}` }), kind[0].toUpperCase() + kind.slice(1)), value));
  return [kind, value];
}));
const rules = new RulesTable(byId('rule-rows'));
keyLookup(byId('search'), byId('key'), byId('found'));

let latest = 0;
subscribe({
  onevent(event) {
    latest = event.t_ms;
    show(event);
  },
  onstate(connected) {
    const when = latest ? ` Last update: ${new Date(latest).toLocaleTimeString()}.` : '';
    setText(byId('badge'), connected ? 'live' : 'lost');
    byId('badge').className = `badge ${connected ? '' : 'lost'}`;
    document.body.classList.toggle('stale', !connected);
    notice(connected ? '' : `Connection lost; reconnecting.${when}`);
  },
});

function show(event) {
  const sum = Object.fromEntries(KINDS.map(([kind]) => [kind, 0]));
  for (const rule of event.rules) {
    const own = kinds(rule.per_second);
    for (const [kind] of KINDS) sum[kind] += own[kind];
  }
  past.push(sum);
  if (past.length > SECONDS) past.shift();
  const tallest = chart.draw(past);
  setText(peak, `The last three minutes; maximum ${rate(tallest)} per second.`);
  for (const [kind] of KINDS) setText(figures[kind], rate(sum[kind]));
  facts(event);
  rules.draw(event.rules);
  const number = event.rules_in_force ?? event.rules.length;
  setText(byId('rules-count'), `${number} active${event.rules.length < number ? ', the busiest are shown' : ''}.`);
  top('top-refused', event.top.refused, 'No recent refusals.');
  top('top-hottest', event.top.hottest, 'No recent requests.');
  if (event.kill_switch && event.kill_switch !== 'off') notice(`The kill switch is set to ${event.kill_switch}: rules are not applied.`);
}

function facts({ store, keys, shared, reloads, reload_errors: failed }) {
  const down = store.breaker === 'open';
  const list = [
    ['Type', store.kind === 'redis' ? 'Redis' : 'memory', ''],
    ['Breaker', down ? 'open: deciding without the store' : 'closed', down ? 'refused' : ''],
    ['Latency, median', time(store.p50_us), ''],
    ['Latency, p99', time(store.p99_us), ''],
    ['Errors', count(store.errors), store.errors ? 'refused' : ''],
    ['Live keys', store.kind === 'redis' ? 'in Redis' : count(keys), ''],
    ['Shared budgets', count(shared), ''],
    ['Reloads', `${count(reloads)}${failed ? `, ${failed} failed` : ''}`, failed ? 'refused' : ''],
  ];
  const element = byId('facts');
  if (element.childElementCount === 0) element.append(...list.map(([name]) => h('div', {}, h('dt', {}, name), h('dd'))));
  list.forEach(([, value, kind], at) => {
    const cell = element.children[at].lastElementChild;
    setText(cell, value);
    cell.className = kind;
  });
}

function top(id, list, emptyText) {
  const element = byId(id);
  if (list.length === 0) {
    element.replaceChildren(h('p', { class: 'muted' }, emptyText));
    return;
  }
  const max = Math.max(...list.map((one) => one.count));
  const rows = list.map((one) => {
    const fill = h('i', { class: id === 'top-refused' ? 'over' : '' });
    fill.style.width = `${(one.count / max) * 100}%`;
    return h('tr', {}, h('th', { scope: 'row' }, h('span', { class: 'mono' }, one.key), h('span', { class: 'origin' }, one.rule === NO_RULE ? 'No rule' : one.rule)),
      h('td', { class: 'figure' }, count(one.count)), h('td', { 'aria-hidden': 'true' }, h('span', { class: 'track' }, fill)));
  });
  element.replaceChildren(h('table', { class: 'bars keys' }, h('tbody', {}, ...rows)));
}

function time(us) {
  if (us === null || us === undefined) return 'no data';
  return us < 1000 ? `${Math.round(us)} µs` : `${Math.round(us / 100) / 10} ms`;
}

function notice(text) {
  setText(byId('notice'), text);
  byId('notice').hidden = !text;
}

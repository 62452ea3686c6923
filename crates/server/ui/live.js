// The live view: what the running server does, told once a second. Read-only.

import { KINDS, SECONDS, bands, kinds } from './stacked-bars.js';
import { h, say } from './dom.js';
import { keyFinder } from './key-lookup.js';
import { NO_RULE, RuleList, count, rate } from './rules-table.js';
import { follow } from './events.js';

const find = (id) => document.getElementById(id);
const past = [];
const picture = bands(720, 150, 'Decisions a second, the last three minutes');
const peak = h('p', { class: 'quiet axis-words' });
find('bands').append(picture.element, peak);
const figures = Object.fromEntries(KINDS.map(([kind, colour]) => {
  const value = h('dd');
  find('rates').append(h('div', {}, h('dt', {}, h('i', { class: `dot ${colour}` }), kind[0].toUpperCase() + kind.slice(1)), value));
  return [kind, value];
}));
const rules = new RuleList(find('rule-rows'));
keyFinder(find('search'), find('key'), find('found'));

let latest = 0;
follow({
  onevent(event) {
    latest = event.t_ms;
    show(event);
  },
  onstate(connected) {
    const when = latest ? ` Figures are of ${new Date(latest).toLocaleTimeString()}.` : '';
    say(find('badge'), connected ? 'live' : 'lost');
    find('badge').className = `badge ${connected ? '' : 'lost'}`;
    document.body.classList.toggle('stale', !connected);
    notice(connected ? '' : `The stream is lost; trying again.${when}`);
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
  const tallest = picture.draw(past);
  say(peak, `Three minutes; the tallest is ${rate(tallest)} a second.`);
  for (const [kind] of KINDS) say(figures[kind], rate(sum[kind]));
  facts(event);
  rules.draw(event.rules);
  const number = event.rules_in_force ?? event.rules.length;
  say(find('rules-words'), `${number} in force${event.rules.length < number ? ', the busiest shown' : ''}.`);
  top('top-refused', event.top.refused, 'Nobody was refused lately.');
  top('top-hottest', event.top.hottest, 'Nobody came lately.');
  if (event.kill_switch && event.kill_switch !== 'off') notice(`The kill switch is on ${event.kill_switch}: no rule decides.`);
}

function facts({ store, keys, shared, reloads, reload_errors: failed }) {
  const down = store.breaker === 'open';
  const list = [
    ['Kept in', store.kind === 'redis' ? 'Redis' : 'memory', ''],
    ['Breaker', down ? 'open: deciding without it' : 'closed', down ? 'refused' : ''],
    ['Answers, median', time(store.p50_us), ''],
    ['Answers, 99 of 100', time(store.p99_us), ''],
    ['Errors', count(store.errors), store.errors ? 'refused' : ''],
    ['Live keys', store.kind === 'redis' ? 'in Redis' : count(keys), ''],
    ['Sharing a budget', count(shared), ''],
    ['Rules read again', `${count(reloads)}${failed ? `, ${failed} failed` : ''}`, failed ? 'refused' : ''],
  ];
  const place = find('facts');
  if (place.childElementCount === 0) place.append(...list.map(([name]) => h('div', {}, h('dt', {}, name), h('dd'))));
  list.forEach(([, value, kind], at) => {
    const cell = place.children[at].lastElementChild;
    say(cell, value);
    cell.className = kind;
  });
}

function top(id, list, nobody) {
  const place = find(id);
  if (list.length === 0) {
    place.replaceChildren(h('p', { class: 'quiet' }, nobody));
    return;
  }
  const most = Math.max(...list.map((one) => one.count));
  const rows = list.map((one) => {
    const fill = h('i', { class: id === 'top-refused' ? 'over' : '' });
    fill.style.width = `${(one.count / most) * 100}%`;
    return h('tr', {}, h('th', { scope: 'row' }, h('span', { class: 'mono' }, one.key), h('span', { class: 'origin' }, one.rule === NO_RULE ? 'asked without a rule' : one.rule)),
      h('td', { class: 'figure' }, count(one.count)), h('td', { 'aria-hidden': 'true' }, h('span', { class: 'track' }, fill)));
  });
  place.replaceChildren(h('table', { class: 'bars keys' }, h('tbody', {}, ...rows)));
}

function time(us) {
  if (us === null || us === undefined) return 'none lately';
  return us < 1000 ? `${Math.round(us)} µs` : `${Math.round(us / 100) / 10} ms`;
}

function notice(text) {
  say(find('notice'), text);
  find('notice').hidden = !text;
}

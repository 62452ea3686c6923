// The table of rules: rates, settings and keys on demand, and a small chart each.

import { History, KINDS, SECONDS, kinds, stackedBars, tallest } from './stacked-bars.js';
import { h, setText } from './dom.js';

/** The name for decisions without a rule. */
export const NO_RULE = '(none)';

const COLUMNS = [['admitted', 'Admitted /s'], ['refused', 'Refused /s'], ['would refuse', 'Would refuse /s'], ['delayed', 'Delayed /s'], ['degraded', 'Degraded /s']];

export class RulesTable {
  #rows = new Map();
  #body;
  #lookup;

  constructor(body, lookup) {
    this.#body = body;
    this.#lookup = lookup;
  }

  draw(rules, t_ms, top) {
    const seen = new Set(rules.map((rule) => rule.name));
    for (const [name, row] of this.#rows) {
      if (seen.has(name)) continue;
      row.elements.forEach((element) => element.remove());
      this.#rows.delete(name);
    }
    rules.forEach((rule, at) => {
      const row = this.#rows.get(rule.name) ?? this.#make(rule.name);
      row.draw(rule, t_ms, top);
      row.elements.forEach((element, part) => {
        const place = this.#body.children[2 * at + part];
        if (place !== element) this.#body.insertBefore(element, place ?? null);
      });
    });
  }

  #make(name) {
    const cell = (label, kind = '') => h('td', { 'data-label': label, class: kind });
    const chart = stackedBars(SECONDS, 28, `${name}, the last three minutes`);
    const cells = Object.fromEntries(COLUMNS.map(([kind, label]) => [kind, cell(label, 'num')]));
    const [limits, total] = [cell('Limits', 'mono limits'), cell('Total', 'num')];
    const [flagsElement, origin, idle] = [h('span', { class: 'rule-flags' }), h('span', { class: 'origin' }), h('span', { class: 'idle-rule' })];
    const id = `rule-${this.#rows.size}-${Math.random().toString(36).slice(2)}`;
    const content = h('td', { colspan: COLUMNS.length + 4 });
    const details = h('tr', { class: 'rule-details', id, hidden: true }, content);
    const keys = h('div');
    const toggle = async () => {
      details.hidden = !details.hidden;
      button.setAttribute('aria-expanded', String(!details.hidden));
      if (details.hidden) return;
      const { pairs, hasKey } = await settingsOf(name);
      content.replaceChildren(h('dl', {}, ...pairs), callersOf(hasKey), keys);
    };
    /** Where the members of a shared limit, or the holds of a concurrency limit, are shown. */
    const callersOf = (hasKey) => {
      const what = [[/ shared /, 'who shares its limit and who borrows'], [/^concurrent /m, 'what is in flight']].find(([pattern]) => pattern.test(`${limits.textContent} `));
      if (!what) return '';
      if (hasKey) return h('div', { class: 'muted' }, `Look up a key to see ${what[1]}.`);
      return h('div', {}, h('button', { type: 'button', class: 'link', onclick: () => this.#lookup.show('') }, `See ${what[1]}`));
    };
    const button = h('button', { type: 'button', class: 'link disclosure', 'aria-expanded': 'false', 'aria-controls': id }, name);
    const title = name === NO_RULE ? h('b', {}, 'No rule') : button;
    const element = h('tr', { class: name === NO_RULE ? '' : 'clickable', onclick: name === NO_RULE ? undefined : () => {
      // Not after a selection of text.
      if (getSelection().isCollapsed) toggle();
    } }, h('th', { scope: 'row' }, title, flagsElement, origin, idle), limits, ...COLUMNS.map(([kind]) => cells[kind]),
    h('td', { 'data-label': 'Last 3 minutes', class: 'spark' }, chart.element), total);
    const past = new History();
    const row = {
      elements: [element, details],
      draw(rule, t_ms, top) {
        const now = kinds(rule.per_second);
        past.push(t_ms, now);
        chart.draw(past.entries, Math.max(1, tallest(past.entries)));
        for (const [kind] of COLUMNS) {
          setText(cells[kind], rate(now[kind]));
          cells[kind].classList.toggle('zero', now[kind] === 0);
        }
        element.classList.toggle('idle-row', past.idle);
        setText(idle, past.idle ? 'no requests' : '');
        setText(limits, rule.limits.join('\n') || '–');
        const flags = [rule.enabled ? '' : 'disabled', rule.shadow ? 'shadow mode' : '', rule.queue ? `${rule.queue} queued` : ''];
        setText(flagsElement, flags.filter(Boolean).join(', '));
        setText(origin, name === NO_RULE ? 'checks that name a quota' : rule.origin ?? '');
        const sums = kinds(rule.total);
        const all = KINDS.reduce((sum, [kind]) => sum + sums[kind], 0);
        setText(total, count(all));
        total.classList.toggle('zero', all === 0);
        element.dataset.rule = name;
        element.dataset.total = String(all);
        element.dataset.refused = String(sums.refused);
        element.dataset.wouldRefuse = String(sums['would refuse']);
        if (!details.hidden) setText(keys, keysOf(name, top));
      },
    };
    this.#rows.set(name, row);
    return row;
  }
}

/** The most refused keys of a rule, as text. */
function keysOf(name, top) {
  const own = top.refused.filter((one) => one.rule === name).slice(0, 3).map((one) => `${one.key} (${count(one.count)})`);
  return own.length > 0 ? `Most refused: ${own.join(', ')}` : '';
}

async function settingsOf(name) {
  const pair = (term, text) => h('div', {}, h('dt', {}, term), h('dd', {}, text));
  const only = (text) => ({ pairs: [pair('Settings', text)], hasKey: true });
  try {
    const response = await fetch('/admin/rules', { signal: AbortSignal.timeout(10000) });
    if (!response.ok) return only(response.status === 401 ? 'need the admin token' : `the server responded with ${response.status}`);
    const { rules } = await response.json();
    const rule = rules.find((one) => one.name === name);
    if (!rule) return only('the rule no longer exists');
    const { methods, paths, every_request: all } = rule.match;
    const which = all ? 'every request' : [methods.join(' '), paths.join(' ')].filter(Boolean).join(' ') || 'some requests';
    const pairs = [
      pair('Applies to', which), pair('Key', rule.key.map((part) => part.join(', or else ')).join('; ') || 'all clients together'),
      pair('Without store', rule.on_failure), pair('Without key', rule.on_missing),
      pair('Lists', `${rule.allow} allowed, ${rule.deny} denied`), pair('Stop', rule.stop ? 'yes: later rules are skipped' : 'no'),
    ];
    return { pairs, hasKey: rule.key.length > 0 };
  } catch {
    return only('the server does not respond');
  }
}

/** A rate with at most one decimal. */
export function rate(number) {
  return number >= 100 ? count(Math.round(number)) : String(Math.round(number * 10) / 10);
}

export function count(number) {
  return number.toLocaleString('en');
}

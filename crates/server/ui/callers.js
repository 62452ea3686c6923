// Who shares a limit and who borrows, and what is held of a concurrency limit, for a counter that was
// looked up.

import { decimal, duration, h, plural } from './dom.js';

/** As many are listed; the server counts all. */
const MAX_ROWS = 20;

/** Whether a counter tells callers apart. */
export const hasCallers = (counter) => Boolean(counter.share ?? counter.holds);

/** The callers of a counter, as elements. `asked` is a member that was asked for. */
export function callers(counter, asked) {
  const name = `${counter.rule ?? 'No rule'}: ${counter.quota}`;
  return counter.share ? members(name, counter.share, asked) : holds(name, counter.holds);
}

function members(name, { used_milli: used, members: count, weight, borrowing, listed }, asked) {
  const heading = [h('h3', {}, name), h('p', {}, `${plural(count, 'member')}${weight === count ? '' : ` with a weight of ${weight}`}; `,
    h('b', { class: borrowing ? 'refused' : '' }, borrowing ? `${borrowing} borrow${borrowing === 1 ? 's' : ''}` : 'nobody borrows'),
    `. ${decimal(used / 1000)} units of the bucket are used.`)];
  if (count === 0) return [heading[0], h('p', { class: 'muted' }, 'No members now.')];
  if (listed.length === 0) return [...heading, h('p', { class: 'muted' }, asked ? 'That member has not been admitted lately.' : 'None is listed.')];
  const rows = listed.slice(0, MAX_ROWS).map((one) => {
    const fill = h('i', { class: one.borrows ? 'over' : '' });
    fill.hidden = one.used_milli === 0;
    fill.style.width = `${Math.min(100, (one.used_milli / one.most_milli) * 100)}%`;
    return h('tr', {}, h('th', { scope: 'row', class: 'mono' }, one.member ?? 'without a name'),
      h('td', { class: one.borrows ? 'refused' : 'muted' }, one.borrows ? 'borrows' : 'own share'), h('td', { class: 'num weight' }, String(one.weight)),
      h('td', { class: 'num' }, `${decimal(one.used_milli / 1000)} of ${decimal(one.most_milli / 1000)}`),
      h('td', { 'aria-hidden': 'true', class: 'fill' }, h('span', { class: 'track' }, fill)));
  });
  return [...heading, table(['Member', 'Now', 'Weight', 'Share used', ''], rows), ...more(count, asked ? rows.length : MAX_ROWS, asked)];
}

function holds(name, { units, owners, listed }) {
  const heading = [h('h3', {}, name), h('p', {}, owners === 0 ? 'Nothing is in flight.' : `${plural(units, 'unit')} in flight, held by ${plural(owners, 'owner')}.`)];
  if (owners === 0) return heading;
  const rows = listed.slice(0, MAX_ROWS).map((one) => h('tr', {}, h('th', { scope: 'row', class: 'mono' }, one.owner ?? 'without a name'),
    h('td', { class: 'num' }, String(one.units)), h('td', {}, `ends in ${duration(one.ends_after_us)} unless renewed`)));
  return [...heading, table(['Owner', 'Units', 'Hold'], rows), ...more(owners, MAX_ROWS)];
}

function table(head, rows) {
  const element = h('table', { class: 'bars callers' }, h('thead', {}, h('tr', {}, ...head.map((text) => (text ? h('th', { scope: 'col', class: text === 'Weight' ? 'num weight' : /used|Units/.test(text) ? 'num' : '' }, text) : h('td', { class: 'fill' }))))), h('tbody', {}, ...rows));
  return h('div', { class: 'scroll' }, element);
}

function more(count, shown, asked) {
  return count > shown && !asked ? [h('p', { class: 'muted' }, `And ${(count - shown).toLocaleString('en')} more.`)] : [];
}

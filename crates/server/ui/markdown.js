// Markdown to elements, as far as the documents use it: headings, paragraphs, lists, tables, code, links,
// emphasis. Text stays text: no HTML is interpreted.

import { h } from './dom.js';

/** The elements of a document; `resolve` maps the target of a link to an address, or to null. */
export function markdown(text, resolve) {
  return blocks(text.replaceAll('\r', '').split('\n'), resolve);
}

function blocks(lines, resolve) {
  const out = [];
  let at = 0;
  const inline = (source) => spans(source, resolve);
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^(`{3,})/.exec(line);
    const heading = /^(#{1,6}) (.*)/.exec(line);
    if (fence) {
      const end = lines.findIndex((other, index) => index > at && other.startsWith(fence[1]));
      const last = end < 0 ? lines.length : end;
      out.push(h('pre', { class: 'mono', tabindex: 0 }, lines.slice(at + 1, last).join('\n')));
      at = last + 1;
    } else if (heading) {
      out.push(h(`h${heading[1].length}`, { id: `h-${slug(heading[2])}` }, ...inline(heading[2])));
      at += 1;
    } else if (/^\|/.test(line)) {
      const end = until(lines, at, (other) => !other.startsWith('|'));
      out.push(table(lines.slice(at, end), inline));
      at = end;
    } else if (/^(-|\d+\.) /.test(line)) {
      const end = until(lines, at + 1, (other, index) => other !== '' && !/^(-|\d+\.| )/.test(other) && lines[index - 1] === '');
      out.push(list(lines.slice(at, end), resolve));
      at = end;
    } else if (line.trim() === '') {
      at += 1;
    } else {
      const end = until(lines, at + 1, (other) => /^(\s*$|#{1,6} |`{3}|\||- |\d+\. )/.test(other));
      const content = inline(lines.slice(at, end).join(' '));
      if (content.length > 0) out.push(h('p', {}, ...content));
      at = end;
    }
  }
  return out;
}

function until(lines, from, stops) {
  const found = lines.slice(from).findIndex((line, at) => stops(line, from + at));
  return found < 0 ? lines.length : from + found;
}

/** Items, and what is indented below them. */
function list(lines, resolve) {
  const items = [];
  for (const line of lines) {
    const item = /^(?:-|\d+\.) (.*)/.exec(line);
    if (item) items.push([item[1].replace(/^\[[ x]\] /, '')]);
    else items.at(-1).push(line.replace(/^ {1,3}/, ''));
  }
  const ordered = /^\d/.test(lines[0]);
  return h(ordered ? 'ol' : 'ul', {}, ...items.map((item) => {
    const [first, ...rest] = blocks(item, resolve);
    return h('li', {}, ...(first?.tagName === 'P' ? first.childNodes : [first]), ...rest);
  }));
}

function table([head, , ...rows], inline) {
  const cells = (row) => row.replaceAll('\\|', '\0').replace(/^\||\|\s*$/g, '').split('|').map((cell) => cell.replaceAll('\0', '|').trim());
  return h('div', { class: 'scroll', tabindex: 0 }, h('table', {},
    h('thead', {}, h('tr', {}, ...cells(head).map((cell) => h('th', { scope: 'col' }, ...inline(cell))))),
    h('tbody', {}, ...rows.map((row) => h('tr', {}, ...cells(row).map((cell) => h('td', {}, ...inline(cell))))))));
}

const SPAN = /(`+)(.+?)\1(?!`)|(!?)\[((?:[^[\]]|\[[^\]]*\])*)\]\(([^)\s]*)[^)]*\)|\*\*(.+?)\*\*|<(https?:[^>\s]+)>/;

/** The text of a paragraph with its code, links and emphasis. Pictures are left out: they show the pages. */
function spans(source, resolve) {
  const out = [];
  let rest = source;
  for (let found = SPAN.exec(rest); found; found = SPAN.exec(rest)) {
    const [whole, ticks, code, picture, label, target, strong, bare] = found;
    if (found.index > 0) out.push(rest.slice(0, found.index));
    rest = rest.slice(found.index + whole.length);
    if (ticks) out.push(h('code', { class: 'mono' }, code.trim()));
    else if (strong) out.push(h('b', {}, ...spans(strong, resolve)));
    else if (bare) out.push(h('a', { href: bare, rel: 'noreferrer' }, bare));
    else if (!picture) out.push(...link(label, target, resolve));
  }
  if (rest) out.push(rest);
  return out;
}

function link(label, target, resolve) {
  const content = spans(label, resolve);
  const address = resolve(target);
  if (content.length === 0) return [];
  return address === null ? content : [h('a', { href: address, rel: 'noreferrer' }, ...content)];
}

/** The id of a heading, as on code hosts. */
function slug(text) {
  return text.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').trim().replaceAll(' ', '-');
}

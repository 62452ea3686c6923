// Makes elements and writes figures for people. Knows nothing of rate limits.

const SVG = 'http://www.w3.org/2000/svg';

/** Makes an element: `h('button', { class: 'quiet', onclick }, 'Send')`. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Makes an element of a drawing. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets attributes of a drawing's element; numbers are rounded to what a screen shows. */
export function set(element, props) {
  for (const [name, value] of Object.entries(props)) {
    const written = typeof value === 'number' ? String(Math.round(value * 100) / 100) : value;
    if (element.getAttribute(name) !== written) element.setAttribute(name, written);
  }
}

/** Shows a text, touching the page only if it changed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Keeps as many children of one kind as are needed, and hands each to `draw`. */
export function each(group, tag, items, draw) {
  while (group.childElementCount > items.length) group.lastElementChild.remove();
  while (group.childElementCount < items.length) group.append(s(tag));
  items.forEach((item, at) => draw(group.children[at], item, at));
}

/** A duration as people say it: `0`, `350 ms`, `4.2 s`, `2 min 5 s`. */
export function duration(us) {
  if (us <= 0) return '0 s';
  if (us < 1000) return `${Math.ceil(us)} µs`;
  if (us < 1e6) return `${Math.ceil(us / 1000)} ms`;
  if (us < 6e7) return `${(Math.ceil(us / 1e5) / 10).toFixed(1)} s`;
  const seconds = Math.ceil(us / 1e6);
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  if (hours) return `${hours} h ${minutes} min`;
  return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
}

/** A duration that is counted down: calm, to a tenth of a second. */
export function countdown(us) {
  return us < 6e7 ? `${(Math.ceil(Math.max(0, us) / 1e5) / 10).toFixed(1)} s` : duration(us);
}

/** A number with at most one digit behind the point. */
export function figure(number) {
  return String(Math.round(number * 10) / 10);
}

/** `1 request`, `3 requests`. */
export function plural(count, word) {
  return `${count} ${word}${count === 1 ? '' : 's'}`;
}

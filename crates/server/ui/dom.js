// Creates elements and formats numbers.

const SVG = 'http://www.w3.org/2000/svg';

/** Creates an element: `h('button', { class: 'muted', onclick }, 'Send')`. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Creates an SVG element. */
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

/** Sets attributes of an SVG element; numbers are rounded to hundredths. */
export function setAttributes(element, props) {
  for (const [name, value] of Object.entries(props)) {
    const written = typeof value === 'number' ? String(Math.round(value * 100) / 100) : value;
    if (element.getAttribute(name) !== written) element.setAttribute(name, written);
  }
}

/** Sets the text if it changed. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Adds or removes children so that there is one per item, and calls `draw` for each. */
export function renderEach(group, tag, items, draw) {
  while (group.childElementCount > items.length) group.lastElementChild.remove();
  while (group.childElementCount < items.length) group.append(s(tag));
  items.forEach((item, at) => draw(group.children[at], item, at));
}

/** A duration: `0`, `350 ms`, `4.2 s`, `2 min 5 s`. */
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

/** A duration for a countdown, to a tenth of a second. */
export function countdown(us) {
  return us < 6e7 ? `${(Math.ceil(Math.max(0, us) / 1e5) / 10).toFixed(1)} s` : duration(us);
}

/** A number with at most one decimal. */
export function decimal(number) {
  return String(Math.round(number * 10) / 10);
}

/** `1 request`, `3 requests`. */
export function plural(count, word) {
  return `${count} ${word}${count === 1 ? '' : 's'}`;
}

// The documents that are embedded in the binary, one at a time, by the hash: `#rules.md`, or
// `#rules.md/key` for a heading of it.

import { h, setText } from './dom.js';
import { markdown } from './markdown.js';

const byId = (id) => document.getElementById(id);
const links = [...document.querySelectorAll('#contents a')];
const names = links.map((link) => link.getAttribute('href').slice('docs/'.length));
links.forEach((link, at) => link.setAttribute('href', `#${names[at]}`));

let shown = '';
addEventListener('hashchange', show);
show();

async function show() {
  const [wanted, heading] = decodeURIComponent(location.hash.slice(1)).split('/');
  const name = names.includes(wanted) ? wanted : names[0];
  if (name !== shown) {
    byId('document').replaceChildren(...await load(name));
    shown = name;
    links.forEach((link, at) => (names[at] === name ? link.setAttribute('aria-current', 'true') : link.removeAttribute('aria-current')));
    document.title = `Tallygate: ${links[names.indexOf(name)].textContent}`;
  }
  const target = heading && document.getElementById(`h-${heading}`);
  if (target) target.scrollIntoView();
  else scrollTo(0, 0);
}

async function load(name) {
  try {
    const response = await fetch(`docs/${name}`, { signal: AbortSignal.timeout(10000) });
    if (!response.ok) throw new Error(`the server responded with ${response.status}`);
    return markdown(await response.text(), (target) => resolve(name, target));
  } catch (error) {
    return [h('p', { class: 'error' }, `The document could not be loaded: ${error.message}.`)];
  }
}

/** The address of a link in a document, or null if it leads to what is not here. */
function resolve(from, target) {
  if (/^https?:/.test(target)) return target;
  const [path, heading] = target.split('#');
  const name = path.split('/').at(-1) || from;
  if (!names.includes(name)) return null;
  return heading ? `#${name}/${heading}` : `#${name}`;
}

setText(byId('back'), location.pathname.startsWith('/live/') ? 'Live view' : 'Playground');
byId('back').href = location.pathname.startsWith('/live/') ? '/live' : '/';

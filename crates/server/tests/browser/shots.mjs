// Takes the screenshots in docs/images.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { browser, serve, visit } from './harness.mjs';

const images = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../../../docs/images');
mkdirSync(images, { recursive: true });
const server = await serve();
const folder = mkdtempSync(path.join(tmpdir(), 'tallygate-shots-'));
writeFileSync(path.join(folder, 'rules.yaml'), `version: 1
rules:
  - name: tenants
    limits: token-bucket 100/s burst 100 shared 4
    share: { by: [{ header: x-tenant }], weights: { acme: 4 } }
`);
const tenants = await serve({ args: ['--config', path.join(folder, 'rules.yaml'), '--playground'] });
const chrome = await browser();
const [desktop, phone] = [{ width: 1440, height: 900 }, { width: 390, height: 844 }];

/** `run shots NAME…` takes those that start with one of the names. */
const wanted = process.argv.slice(2);

async function screenshot(name, url, { scheme, size, prepare, ...options }) {
  if (wanted.length > 0 && !wanted.some((start) => name.startsWith(start))) return;
  const { page, end } = await visit(chrome, url, { colorScheme: scheme, viewport: size, ...options });
  const finish = await prepare(page);
  await page.screenshot({ path: path.join(images, `${name}.png`) });
  await finish?.();
  console.log(name);
  await end();
}

/** Moves the time. The buttons may be hidden on a phone. */
function advance(page, by) {
  return page.evaluate((label) => [...document.querySelectorAll('#time-options button')].find((one) => one.textContent === label).click(), by);
}

/** Bursts of fifteen requests for 16.5 seconds. */
async function traffic(page) {
  await page.click('#run');
  for (let step = 0; step < 16; step += 1) await advance(page, '+ 1 s');
  for (let step = 0; step < 5; step += 1) await advance(page, '+ 0.1 s');
  await page.waitForFunction(() => document.querySelector('#details-token .counts-line').textContent.startsWith('22'));
}

async function labs(page) {
  for (const name of ['boundary', 'race', 'skew', 'outage', 'greedy', 'stampede']) {
    await page.click(`#lab-${name} button`);
    await page.waitForSelector(`#lab-${name}-result[data-done]`);
  }
  await page.evaluate(() => document.querySelector('#labs').scrollIntoView());
}

/** Two clients of which one crashed, and requests that cost less, more and nobody knows. */
async function beyond(page) {
  await page.click('#lab-shares button');
  await page.waitForSelector('#lab-shares-result[data-done]');
  const start = async (count) => {
    for (let one = 0; one < count; one += 1) await page.click('#lab-in-flight button:text-is("Start request")');
    await page.waitForFunction((expected) => document.querySelectorAll('.holds .held').length === expected, count);
  };
  for (let open = 1; open <= 4; open += 1) {
    await page.click('#lab-reserve button:text-is("Reserve 200")');
    await page.waitForFunction((rows) => document.querySelectorAll('#lab-reserve tbody tr').length === rows, open);
  }
  for (const actual of ['80', '500', 'never']) await page.click(`#lab-reserve button:text-is("${actual}")`);
  await page.waitForFunction(() => [...document.querySelectorAll('#lab-reserve td')].some((cell) => cell.textContent === '300 more charged'));
  await start(3);
  await page.click('#lab-in-flight button:text-is("Crash")');
  // Until the crashed ones differ visibly.
  await page.waitForFunction(() => Number.parseFloat(document.querySelector('.holds .crashed .left')?.textContent) < 7);
  await start(4);
  await page.mouse.move(0, 0);
  await page.evaluate(() => document.querySelector('#beyond').scrollIntoView());
}

/** Tenants of a shared limit, two of which ask for too much, on a server of its own. */
async function members(page, tenants) {
  const check = (tenant) => fetch(`${tenants.page}/v1/check?status=200`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ rule: 'tenants', attributes: { headers: { 'x-tenant': tenant } } }),
  });
  let ended = false;
  const send = async (tenant, requests, pause) => {
    while (!ended) {
      await Promise.all(Array.from({ length: requests }, () => check(tenant)));
      await new Promise((resolve) => { setTimeout(resolve, pause); });
    }
  };
  const traffic = [send('acme', 12, 20), send('greedy', 12, 20), ...Array.from({ length: 6 }, (_, at) => send(`light-${at}`, 1, 300))];
  await page.waitForSelector('#rule-rows tr[data-rule=tenants]');
  await page.click('#search button[type=submit]');
  await page.waitForFunction(() => document.querySelectorAll('.callers tbody tr').length === 8 && document.querySelectorAll('.callers td.refused').length === 2);
  await page.evaluate(() => document.querySelector('#search').parentElement.scrollIntoView({ block: 'end' }));
  return async () => {
    ended = true;
    await Promise.all(traffic);
  };
}

/** Logins, most of them from one address. */
async function logins(seconds) {
  const check = (ip, rule) => fetch(`${server.page}/v1/check?status=200`, {
    method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ rule, attributes: { ip, method: 'POST', path: rule === 'login' ? '/login' : '/api/x' } }),
  });
  const end = Date.now() + seconds * 1000;
  for (let turn = 0; Date.now() < end; turn += 1) {
    const wave = 4 + Math.round(3 * Math.sin(turn / 25));
    for (let one = 0; one < wave; one += 1) {
      await check(`192.0.2.${1 + Math.floor(Math.random() ** 3 * 12)}`, Math.random() < 0.4 ? 'login' : 'api');
    }
    await new Promise((resolve) => { setTimeout(resolve, 60); });
  }
}

const step = `${server.page}/#clock=step`;
/** Scrolls so that an element is below the bar. */
const scrollTo = (page, selector) => page.evaluate((target) => document.querySelector(target).scrollIntoView(), selector);
for (const scheme of ['light', 'dark']) {
  await screenshot(`playground-${scheme}`, step, { scheme, size: desktop, prepare: traffic });
  await screenshot(`playground-phone-${scheme}`, step, { scheme, size: phone, prepare: async (page) => {
    await traffic(page);
    await scrollTo(page, '#card-token');
  } });
  await screenshot(`details-${scheme}`, step, { scheme, size: desktop, prepare: async (page) => {
    await traffic(page);
    await page.click('#card-token .use');
    await page.click('#use-token-tab-1');
    await page.evaluate(() => document.querySelector('#details-token').scrollIntoView({ block: 'end' }));
  }, reducedMotion: 'reduce' });
  await screenshot(`chart-${scheme}`, `${step}&traffic=boundary`, { scheme, size: { width: 1440, height: 640 }, prepare: async (page) => {
    await page.click('#run');
    for (let turn = 0; turn < 45; turn += 1) await advance(page, '+ 1 s');
    await scrollTo(page, '#throughput');
    await page.waitForFunction(() => document.querySelector('#plots .worst').textContent.startsWith('20'));
  } });
  await screenshot(`labs-${scheme}`, step, { scheme, size: { width: 1440, height: 1000 }, prepare: labs });
  await screenshot(`beyond-${scheme}`, step, { scheme, size: { width: 1440, height: 780 }, prepare: beyond });
  await screenshot(`beyond-phone-${scheme}`, step, { scheme, size: { width: 390, height: 2080 }, prepare: beyond });
  await screenshot(`live-members-${scheme}`, tenants.live, { scheme, size: { width: 1440, height: 560 }, prepare: (page) => members(page, tenants) });
  await screenshot(`live-${scheme}`, server.live, { scheme, size: desktop, prepare: () => logins(60) });
  await screenshot(`live-phone-${scheme}`, server.live, { scheme, size: phone, prepare: () => logins(20) });
}
await chrome.close();
await server.end();
await tenants.end();
rmSync(folder, { recursive: true });

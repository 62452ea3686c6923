// Takes the screenshots in docs/images.

import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { browser, serve, visit } from './harness.mjs';

const images = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../../../docs/images');
mkdirSync(images, { recursive: true });
const server = await serve();
const chrome = await browser();
const [desktop, phone] = [{ width: 1440, height: 900 }, { width: 390, height: 844 }];

/** `run shots NAME…` takes those that start with one of the names. */
const wanted = process.argv.slice(2);

async function screenshot(name, url, { scheme, size, prepare, ...options }) {
  if (wanted.length > 0 && !wanted.some((start) => name.startsWith(start))) return;
  const { page, end } = await visit(chrome, url, { colorScheme: scheme, viewport: size, ...options });
  await prepare(page);
  await page.screenshot({ path: path.join(images, `${name}.png`) });
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
  await screenshot(`live-${scheme}`, server.live, { scheme, size: desktop, prepare: () => logins(60) });
  await screenshot(`live-phone-${scheme}`, server.live, { scheme, size: phone, prepare: () => logins(20) });
}
await chrome.close();
await server.end();

// Takes the screenshots in docs/images.

import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { browser, serve, visit } from './harness.mjs';

const images = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../../../docs/images');
mkdirSync(images, { recursive: true });
const server = await serve();
const chrome = await browser();
const [desktop, phone] = [{ width: 1280, height: 860 }, { width: 360, height: 740 }];

async function screenshot(name, url, { scheme, size, prepare }) {
  const { page, end } = await visit(chrome, url, { colorScheme: scheme, viewport: size });
  await prepare(page);
  await page.screenshot({ path: path.join(images, `${name}.png`) });
  console.log(name);
  await end();
}

/** Bursts of fifteen requests for 16.5 seconds. */
async function traffic(page) {
  await page.click('#run');
  for (let step = 0; step < 16; step += 1) await page.click('#time-options button:text-is("+ 1 s")');
  for (let step = 0; step < 5; step += 1) await page.click('#time-options button:text-is("+ 0.1 s")');
  await page.waitForFunction(() => document.querySelector('#card-token .counts-line').textContent.startsWith('22'));
}

async function labs(page) {
  for (const name of ['boundary', 'race', 'skew', 'outage', 'greedy', 'stampede']) {
    await page.click(`#lab-${name} button`);
    await page.waitForSelector(`#lab-${name}-result[data-done]`);
  }
  await page.evaluate(() => {
    document.querySelector('#labs').scrollIntoView();
    scrollBy(0, 120);
  });
}

/** A minute of logins, most of them from one address. */
async function logins(page) {
  const check = (ip, rule) => fetch(`${server.page}/v1/check?status=200`, {
    method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ rule, attributes: { ip, method: 'POST', path: rule === 'login' ? '/login' : '/api/x' } }),
  });
  const end = Date.now() + 60000;
  for (let turn = 0; Date.now() < end; turn += 1) {
    const wave = 4 + Math.round(3 * Math.sin(turn / 25));
    for (let one = 0; one < wave; one += 1) {
      await check(`192.0.2.${1 + Math.floor(Math.random() ** 3 * 12)}`, Math.random() < 0.4 ? 'login' : 'api');
    }
    await new Promise((resolve) => { setTimeout(resolve, 60); });
  }
  await page.fill('#key', '192.0.2.1');
  await page.click('#search button');
  await page.waitForSelector('#found td');
  await page.evaluate(() => scrollTo(0, 0));
}

const step = `${server.page}/#clock=step`;
for (const scheme of ['light', 'dark']) {
  await screenshot(`playground-${scheme}`, step, { scheme, size: desktop, prepare: traffic });
  await screenshot(`playground-phone-${scheme}`, step, { scheme, size: phone, prepare: async (page) => {
    await traffic(page);
    await page.evaluate(() => document.querySelector('#card-token').scrollIntoView());
  } });
  await screenshot(`chart-${scheme}`, `${step}&traffic=boundary`, { scheme, size: desktop, prepare: async (page) => {
    await page.click('#run');
    for (let turn = 0; turn < 45; turn += 1) await page.click('#time-options button:text-is("+ 1 s")');
    await page.evaluate(() => document.querySelector('#throughput').scrollIntoView());
    await page.waitForFunction(() => document.querySelector('#plots .worst').textContent.startsWith('20'));
  } });
  await screenshot(`labs-${scheme}`, step, { scheme, size: { width: 1280, height: 980 }, prepare: labs });
}
await screenshot('live-light', server.live, { scheme: 'light', size: { width: 1280, height: 900 }, prepare: logins });
await screenshot('live-dark', server.live, { scheme: 'dark', size: { width: 1280, height: 900 }, prepare: logins });
await screenshot('live-phone-dark', server.live, { scheme: 'dark', size: phone, prepare: (page) => page.waitForSelector('#rule-rows tr') });
await chrome.close();
await server.end();

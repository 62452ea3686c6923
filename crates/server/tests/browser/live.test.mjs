// The live view under traffic, and its reconnection.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { browser, waitForText, serve, visit } from './harness.mjs';

let chrome;
before(async () => { chrome = await browser(); });
after(async () => { await chrome?.close(); });

/** Sends login checks for an address. */
async function logIn(server, ip, times) {
  for (let time = 0; time < times; time += 1) {
    const body = JSON.stringify({ rule: 'login', attributes: { ip, method: 'POST', path: '/login' } });
    await fetch(`${server.page}/v1/check?status=200`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  }
}

test('rules, top keys and the state of a key reflect the traffic', async () => {
  const server = await serve();
  const { page, errors, end } = await visit(chrome, server.live);
  await waitForText(page, '#badge', 'live');
  await logIn(server, '192.0.2.1', 12);
  await logIn(server, '192.0.2.2', 3);
  // The sample's login allows five a minute: 7 of 12 are refused.
  await page.waitForFunction(() => [...document.querySelectorAll('#rule-rows tr')].some((row) => row.textContent.includes('login') && row.lastElementChild.textContent === '15'));
  assert.equal(await page.locator('#rule-rows tr', { hasText: 'login' }).getAttribute('data-refused'), '7');
  await waitForText(page, '#top-refused tbody tr td', '7');
  await waitForText(page, '#top-hottest tbody tr td', '12');
  await waitForText(page, '#facts dd', 'memory');
  await page.fill('#key', '192.0.2.1');
  await page.click('#search button');
  await waitForText(page, '#found tbody tr', /login.*0 of 5, refused/);
  await page.fill('#key', '192.0.2.2');
  await page.click('#search button');
  await waitForText(page, '#found tbody tr', /login.*2 of 5/);
  await page.click('summary:has-text("login")');
  await waitForText(page, '.rules dl', /Applies toPOST \/login/);
  assert.equal(await page.locator('#rule-rows tr', { hasText: 'login' }).locator('.origin').textContent(), 'the built-in sample');
  assert.deepEqual(errors, []);
  await end();
  await server.end();
});

test('a rule in shadow mode shows what it would refuse', async () => {
  const server = await serve();
  const body = JSON.stringify({ shadow: true });
  const switched = await fetch(`http://${server.admin}/admin/rules/login`, { method: 'PATCH', headers: { 'content-type': 'application/json' }, body });
  assert.equal(switched.status, 200);
  const { page, errors, end } = await visit(chrome, server.live);
  await waitForText(page, '#badge', 'live');
  await logIn(server, '192.0.2.1', 12);
  await page.waitForFunction(() => [...document.querySelectorAll('#rule-rows tr')].some((row) => row.textContent.includes('login') && row.lastElementChild.textContent === '12'));
  const row = page.locator('#rule-rows tr', { hasText: 'login' });
  assert.equal(await row.getAttribute('data-would-refuse'), '7');
  assert.equal(await row.getAttribute('data-refused'), '0');
  assert.equal(await row.locator('.rule-flags').textContent(), 'shadow mode');
  await page.waitForSelector('#bands .shadow-refuse rect');
  assert.deepEqual(errors, []);
  await end();
  await server.end();
});

test('a lost connection is reported and restored', async () => {
  const first = await serve();
  const { page, end } = await visit(chrome, first.live);
  await waitForText(page, '#badge', 'live');
  await first.end();
  await waitForText(page, '#badge', 'lost');
  await waitForText(page, '#notice', /Connection lost; reconnecting/);
  const second = await serve({ admin: first.admin });
  await waitForText(page, '#badge', 'live');
  assert.ok(await page.isHidden('#notice'));
  await end();
  await second.end();
});

// The live view under traffic, and its reconnection.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';

import { browser, proxy, waitForText, serve, visit } from './harness.mjs';

let chrome;
before(async () => { chrome = await browser(); });
after(async () => { await chrome?.close(); });

/** Sends checks of a rule for an address, with headers. */
async function send(server, rule, ip, times, headers = {}) {
  for (let time = 0; time < times; time += 1) {
    const body = JSON.stringify({ rule, attributes: { ip, method: 'POST', path: '/login', headers } });
    await fetch(`${server.page}/v1/check?status=200`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  }
}

test('rules, top keys and the state of a key reflect the traffic', async () => {
  const server = await serve();
  const { page, errors, end } = await visit(chrome, server.live);
  await waitForText(page, '#badge', 'live');
  await send(server, 'login', '192.0.2.1', 12);
  await send(server, 'login', '192.0.2.2', 3);
  // The sample's login allows five a minute: 7 of 12 are refused.
  await page.waitForFunction(() => [...document.querySelectorAll('#rule-rows tr')].some((row) => row.dataset.rule === 'login' && row.dataset.total === '15'));
  assert.equal(await page.locator('#rule-rows tr[data-rule=login]').getAttribute('data-refused'), '7');
  await waitForText(page, '#top-refused tbody tr td', '7');
  await waitForText(page, '#top-hottest tbody tr td', '12');
  await waitForText(page, '#facts dd', 'memory');
  await page.fill('#key', '192.0.2.1');
  await page.click('#search button');
  await waitForText(page, '#found tbody tr', /login.*0 of 5in /);
  await page.fill('#key', '192.0.2.2');
  await page.click('#search button');
  await waitForText(page, '#found tbody tr', /login.*2 of 5/);
  // The whole row can be pressed, and its name by keyboard.
  await page.click('#rule-rows tr[data-rule=login] .limits');
  await waitForText(page, '.rule-details:not([hidden]) dl', /Applies toPOST \/login/);
  await page.focus('#rule-rows tr[data-rule=login] button');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.rule-details:not([hidden])', { state: 'detached' });
  assert.equal(await page.locator('#rule-rows tr[data-rule=login]').locator('.origin').textContent(), 'the built-in sample');
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
  await send(server, 'login', '192.0.2.1', 12);
  await page.waitForFunction(() => [...document.querySelectorAll('#rule-rows tr')].some((row) => row.dataset.rule === 'login' && row.dataset.total === '12'));
  const row = page.locator('#rule-rows tr[data-rule=login]');
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

test('a key in a list is looked up by a click, and its hash by hand', async () => {
  const server = await serve();
  const { page, errors, end } = await visit(chrome, server.live);
  await send(server, 'login', '192.0.2.1', 7);
  await page.click('#top-refused tbody tr');
  await waitForText(page, '#found tbody tr', /login.*0 of 5in /);
  const hash = await page.inputValue('#key');
  assert.match(hash, /^#[0-9a-f]{12}$/);
  // By hand, and by keyboard.
  await page.fill('#key', ` ${hash} `);
  await page.keyboard.press('Enter');
  await waitForText(page, '#found tbody tr', /login.*0 of 5in /);
  await page.focus('#top-hottest button');
  await page.keyboard.press('Enter');
  await waitForText(page, '#found tbody tr', /login.*0 of 5in /);
  await page.fill('#key', '#0123456789ab');
  await page.keyboard.press('Enter');
  await waitForText(page, '#found', /^No key with this hash is among the top keys of the last 5 minutes; hashes change when the server restarts\.$/);
  // The console reports the 404.
  assert.deepEqual(errors.filter((error) => !error.includes('404')), []);
  await end();
  await server.end();
});

test('one text from two sources is told apart and explained', async () => {
  const server = await serve();
  const { page, errors, end } = await visit(chrome, server.live);
  await send(server, 'api', '192.0.2.1', 3);
  await send(server, 'api', '192.0.2.9', 2, { 'x-api-key': '192.0.2.1' });
  await waitForText(page, '#top-hottest tbody tr:nth-child(1) .origin', 'api, as ip');
  await waitForText(page, '#top-hottest tbody tr:nth-child(2) .origin', 'api, as header x-api-key');
  await page.fill('#key', '192.0.2.1');
  await page.click('#search button');
  await page.waitForSelector('#found td');
  const rows = await page.$$eval('#found tbody tr', (all) => all.map((row) => [...row.cells].slice(0, 2).map((cell) => cell.textContent).join(', ')));
  assert.deepEqual(rows, ['login, ', 'api, header x-api-key', 'api, ip']);
  assert.match(await page.textContent('#found'), /api is listed more than once: it reads its key from several places/);
  assert.deepEqual(errors, []);
  await end();
  await server.end();
});

test('an idle server says what to do, and the command does it', async () => {
  const server = await serve();
  const { page, errors, end } = await visit(chrome, server.live);
  await page.waitForSelector('.idle:not([hidden])');
  const command = await page.textContent('.idle code');
  assert.match(command, /^curl -i http:\/\/127\.0\.0\.1:\d+\/v1\/check /);
  assert.match(await page.textContent('.idle'), /the playground are not among these/);
  assert.equal(await page.getAttribute('#playground-link', 'href'), server.page);
  execFileSync('sh', ['-c', command], { stdio: 'pipe' });
  await page.waitForSelector('.idle', { state: 'hidden' });
  await page.waitForFunction(() => [...document.querySelectorAll('#rule-rows tr')].some((row) => row.dataset.rule === '(none)' && row.dataset.total === '1'));
  const axis = await page.$$eval('.y-axis span', (all) => all.map((one) => one.textContent));
  assert.equal(axis[0], '0');
  assert.deepEqual(await page.$$eval('.x-axis span', (all) => all.map((one) => one.textContent)), ['−3 min', '−2 min', '−1 min', 'now']);
  // A page that is opened later does not claim that nothing happened.
  const later = await visit(chrome, server.live);
  await later.page.waitForSelector('#top-hottest button');
  assert.ok(await later.page.isHidden('.idle'));
  await later.end();
  assert.deepEqual(errors, []);
  await end();
  await server.end();
});

test('a phone shows no rows of zeros', async () => {
  const server = await serve();
  const { page, errors, end } = await visit(chrome, server.live, { viewport: { width: 390, height: 844 } });
  await page.waitForSelector('#rule-rows tr');
  const zeros = () => page.$$eval('.rules td, .facts > div, .rates > div', (all) => all.filter((one) => one.offsetParent && /(^|[^\d.,])0$/.test(one.innerText.trim())).map((one) => one.innerText.replace('\n', ' ')));
  // Two figures stay, so that the page is not empty.
  await page.waitForFunction(() => document.querySelectorAll('.idle-row').length === 3);
  assert.deepEqual((await zeros()).filter((text) => !/^(Admitted|Refused|Live keys) 0$/.test(text)), []);
  await send(server, 'login', '192.0.2.1', 7);
  await page.waitForFunction(() => document.querySelector('#rule-rows tr[data-rule=login]').dataset.total === '7');
  assert.deepEqual((await zeros()).filter((text) => !/^(Admitted|Refused) 0$/.test(text)), []);
  assert.ok(await page.isVisible('#rule-rows tr[data-rule=login] .spark'));
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${overflow} px too wide`);
  assert.deepEqual(errors, []);
  await end();
  await server.end();
});

test('a stream that is cut or garbled is restored, and what was shown stays', async () => {
  const server = await serve();
  const broken = await proxy(server.admin);
  const { page, end } = await visit(chrome, `http://${broken.address}/live`);
  await waitForText(page, '#badge', 'live');
  await send(server, 'login', '192.0.2.1', 7);
  await page.waitForSelector('#top-refused button');
  const bars = () => page.$$eval('#bands rect', (all) => all.length);
  await page.waitForFunction(() => document.querySelectorAll('#bands rect').length > 0);
  const before = await bars();
  for (let time = 0; time < 3; time += 1) {
    broken.cut();
    await waitForText(page, '#badge', 'lost');
    assert.match(await page.textContent('#notice'), /^Connection lost; reconnecting\. What is shown is from /);
    assert.ok(await page.isVisible('#top-refused button'));
    await waitForText(page, '#badge', 'live');
    assert.ok(await page.isHidden('#notice'));
  }
  // As long as what it replaces, so that the framing stays valid.
  broken.garble('data: <');
  await waitForText(page, '#badge', 'lost');
  broken.garble(null);
  await waitForText(page, '#badge', 'live');
  assert.ok(await bars() >= before, 'the history is kept');
  await end();
  await broken.end();
  await server.end();
});

test('a server that restarts is followed', async () => {
  const first = await serve();
  const { page, end } = await visit(chrome, first.live);
  await send(first, 'login', '192.0.2.1', 7);
  const total = (expected) => page.waitForFunction((text) => document.querySelector('#rule-rows tr[data-rule=login]')?.dataset.total === text, expected);
  await total('7');
  await first.end();
  await waitForText(page, '#badge', 'lost');
  const second = await serve({ admin: first.admin });
  await waitForText(page, '#badge', 'live');
  await total('0');
  await send(second, 'login', '192.0.2.1', 2);
  await total('2');
  await waitForText(page, '#rates dd', /^[0-9.]+$/);
  await end();
  await second.end();
});

test('a key of 10,000 letters is looked up, and shown short', async () => {
  const server = await serve({ args: ['--show-keys'] });
  const { page, errors, end } = await visit(chrome, server.live);
  const key = 'k'.repeat(10000);
  await send(server, 'api', '192.0.2.1', 2, { 'x-user': 'ann' });
  const body = JSON.stringify({ key, quota: 'sliding-window-log 2/h' });
  await fetch(`${server.page}/v1/check`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  await page.waitForFunction(() => [...document.querySelectorAll('#top-hottest button')].some((one) => one.textContent.startsWith('#')));
  await page.fill('#key', key);
  await page.click('#search button');
  await waitForText(page, '.found-key', /^k{60}… \(10,000 letters\) shown as #/);
  await page.waitForSelector('#found td');
  // Of a key this long, the lists have only the hash.
  await page.click('#top-hottest tr:has(button:text-matches("^#"))');
  await waitForText(page, '#found', /^The key is long, so that only its hash is kept: look it up by its text\.$/);
  await page.fill('#key', 'ü'.repeat(100000));
  await page.click('#search button');
  await waitForText(page, '#found', /^The key is too long for a request: 100,000 letters\.$/);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${overflow} px too wide`);
  assert.deepEqual(errors.filter((error) => !/404|414|431/.test(error)), []);
  await end();
  await server.end();
});

// The live view under traffic, and its reconnection.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';

import { axeSource, browser, proxy, redis, waitForText, serve, visit } from './harness.mjs';

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

/** A server with these rules; `end` removes them too. */
async function serveRules(rules, more = {}) {
  const folder = mkdtempSync(path.join(tmpdir(), 'tallygate-live-'));
  writeFileSync(path.join(folder, 'rules.yaml'), rules);
  const server = await serve({ ...more, args: ['--config', path.join(folder, 'rules.yaml')] });
  return { ...server, async end() {
    await server.end();
    rmSync(folder, { recursive: true });
  } };
}

/** Checks a rule and returns the decision. */
async function check(server, rule, headers, more = {}) {
  const body = JSON.stringify({ rule, attributes: { ip: '192.0.2.1', headers }, ...more });
  const response = await fetch(`${server.page}/v1/check?status=200`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  return response.json();
}

const SHARED = `version: 1
rules:
  - name: tenants
    match: { path: /t/** }
    limits: token-bucket 10/h burst 100 shared 4
    share: { by: [{ header: x-tenant }], weights: { acme: 4 } }
    # For busy machines.
    on_failure: { policy: local, deadline: 10s }
  - name: reports
    match: { path: /reports }
    key: [{ header: x-user }]
    limits: [100/h, concurrent 5 for 1h]
    on_failure: { policy: local, deadline: 10s }
`;

for (const kind of ['memory', 'Redis']) {
  test(`the members of a shared limit and who borrows are shown without names, counters in ${kind}`, async () => {
    const store = kind === 'Redis' ? await redis() : null;
    const server = await serveRules(SHARED, { store: store?.url ?? 'memory' });
    const tenant = (name) => check(server, 'tenants', { 'x-tenant': name });
    for (const name of ['light', 'acme', 'acme']) assert.ok((await tenant(name)).allowed);
    while ((await tenant('greedy')).allowed);
    const { page, errors, end } = await visit(chrome, server.live);
    // From the settings of the rule, which has no key.
    await page.click('#rule-rows tr[data-rule=tenants] button.disclosure');
    await page.click('.rule-details button:text-is("See who shares its limit and who borrows")');
    await waitForText(page, '#found h3', 'tenants: token-bucket 10/h burst 100 shared 4');
    await waitForText(page, '#found', /3 members with a weight of 6; 1 borrows\./);
    const rows = () => page.$$eval('.callers tbody tr', (all) => all.map((row) => [...row.cells].filter((cell) => !cell.hasAttribute('aria-hidden')).map((cell) => cell.textContent)));
    const [greedy, acme, light] = await rows();
    assert.deepEqual([greedy[1], greedy[2]], ['borrows', '1']);
    assert.deepEqual(acme.slice(1), ['own share', '4', '2 of 66.7']);
    assert.deepEqual(light.slice(1), ['own share', '1', '1 of 16.7']);
    for (const [name] of [greedy, acme, light]) assert.match(name, /^#[0-9a-f]{12}$/);
    assert.ok(!/acme|greedy|light/.test(await page.textContent('#found')));
    // In one line each, on a phone too.
    for (const width of [390, 1280]) {
      await page.setViewportSize({ width, height: 900 });
      const [tall, wide] = await page.evaluate(() => [Math.max(...[...document.querySelectorAll('.callers tbody tr')].map((row) => row.offsetHeight)), document.documentElement.scrollWidth]);
      assert.ok(tall < 48 && wide <= width, `${tall} px high, ${wide} of ${width} px wide`);
      const table = await page.$eval('.callers', (one) => [one.scrollWidth, one.parentElement.clientWidth]);
      assert.ok(table[0] <= table[1], `the table is ${table.join(' of ')} px wide`);
    }
    await page.evaluate(axeSource);
    const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ['violations'] })).violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`));
    assert.deepEqual(found, []);
    // What follows is seen without another lookup.
    await tenant('fourth');
    await waitForText(page, '#found', /4 members with a weight of 7; /);
    await page.fill('#member', 'acme');
    await page.click('#search button');
    await page.waitForFunction(() => document.querySelectorAll('.callers tbody tr').length === 1);
    assert.equal((await rows())[0][0], acme[0]);
    await page.fill('#member', 'nobody');
    await page.click('#search button');
    await waitForText(page, '#found', /That member has not been admitted lately\./);
    await page.fill('#member', '');
    await page.evaluate(() => fetch('/admin/keys/', { method: 'DELETE' }));
    await page.click('#search button');
    await waitForText(page, '#found', /No members now\./);
    // The deadline of a lookup in Redis may be missed: it is asked again.
    assert.deepEqual(errors.filter((error) => !error.includes('503')), []);
    await end();
    await server.end();
    await store?.end();
  });

  test(`what is in flight under a key is shown without its owners, counters in ${kind}`, async () => {
    const store = kind === 'Redis' ? await redis() : null;
    const server = await serveRules(SHARED, { store: store?.url ?? 'memory' });
    const ask = (owner, verb) => check(server, 'reports', { 'x-user': 'ann' }, { owner, verb });
    for (const owner of ['one', 'two']) assert.ok((await ask(owner, 'check')).allowed);
    const { page, errors, end } = await visit(chrome, server.live, { viewport: { width: 390, height: 844 } });
    await page.fill('#key', 'ann');
    await page.click('#search button');
    await waitForText(page, '#found', /2 units in flight, held by 2 owners\./);
    await waitForText(page, '.callers tbody tr', /^#[0-9a-f]{12}1ends in \d+ min.* unless renewed$/);
    assert.ok(await page.isHidden('#member'));
    await ask('one', 'release');
    await waitForText(page, '#found', /1 unit in flight, held by 1 owner\./);
    await ask('two', 'release');
    await waitForText(page, '#found', /Nothing is in flight\./);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} px too wide`);
    // The deadline of a lookup in Redis may be missed: it is asked again.
    assert.deepEqual(errors.filter((error) => !error.includes('503')), []);
    await end();
    await server.end();
    await store?.end();
  });
}

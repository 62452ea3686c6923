// What a page of another site can do to a server on the machine of its visitor.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { after, before, test } from 'node:test';

import { browser, serve, waitForText, visit } from './harness.mjs';

let server;
let chrome;
let pages;
before(async () => {
  server = await serve();
  chrome = await browser();
  pages = http.createServer((_, response) => {
    response.setHeader('content-type', 'text/html');
    response.end('<!doctype html><title>elsewhere</title><link rel="icon" href="data:,">');
  }).listen(0, '127.0.0.1');
  await once(pages, 'listening');
});
after(async () => {
  await chrome?.close();
  pages?.close();
  await server?.end();
});

const VICTIM = { key: 'victim', quota: 'sliding-window-log 5/h' };

/** Requests of which each would change something. */
function attacks(host) {
  const [, apiPort] = new URL(server.page).host.split(':');
  const [, adminPort] = server.admin.split(':');
  const api = `http://${host}:${apiPort}`;
  const admin = `http://${host}:${adminPort}`;
  const step = { card: 'c', quota: VICTIM.quota };
  return [
    [`${admin}/admin/kill-switch`, 'POST', { state: 'open' }],
    [`${admin}/admin/kill-switch`, 'PUT', { state: 'open' }],
    [`${admin}/admin/overrides`, 'POST', { network: '0.0.0.0/0', deny: true, seconds: 2592000 }],
    [`${admin}/admin/rules/login`, 'PATCH', { shadow: true }],
    [`${admin}/admin/keys/victim?quota=${encodeURIComponent(VICTIM.quota)}`, 'DELETE', null],
    [`${api}/v1/check`, 'POST', { ...VICTIM, verb: 'charge' }],
    [`${api}/v1/check`, 'POST', VICTIM],
    [`${api}/v1/check/batch`, 'POST', [{ ...VICTIM, verb: 'charge' }]],
    [`${api}/api/play`, 'POST', { clock: 'real', steps: [step] }],
    [`${api}/api/lab/boundary`, 'POST', {}],
    [`${api}/api/rate-limit/fixed-window/burst`, 'POST', null],
  ];
}

/** Sends each request in every way that a page has; runs in the page. */
async function sendAll(requests) {
  const readable = [];
  for (const [url, method, value] of requests) {
    const body = value === null ? undefined : JSON.stringify(value);
    // Methods other than GET, HEAD and POST are not sent without a preflight.
    const ways = [{ mode: 'cors', headers: { 'content-type': 'application/json' } }];
    if (method === 'POST') {
      ways.push({ mode: 'no-cors' }, { mode: 'no-cors', type: '' }, { mode: 'cors', type: '' });
      ways.push({ mode: 'no-cors', type: 'text/plain' }, { mode: 'cors', type: 'text/plain' });
      ways.push({ mode: 'no-cors', type: 'application/x-www-form-urlencoded' });
    }
    for (const { mode, headers, type } of ways) {
      const sent = type === undefined || body === undefined ? body : new Blob([body], { type });
      const credentials = 'include';
      try {
        const response = await fetch(url, { method, mode, headers, credentials, body: sent });
        if (response.type !== 'opaque') readable.push(`${method} ${url} ${mode}: ${response.status}`);
      } catch {
        // The browser does not let the page read the response.
      }
    }
    if (method === 'POST') {
      navigator.sendBeacon(url, new Blob([body ?? ''], { type: '' }));
      const form = document.createElement('form');
      Object.assign(form, { method: 'post', action: url, enctype: 'text/plain', target: 'frame' });
      const frame = document.createElement('iframe');
      frame.name = 'frame';
      // Sent as `name=value`, which is JSON if the `=` is within a text.
      const input = document.createElement('input');
      [input.name, input.value] = (body ?? '{}').replace('}', ',"x":"|"}').split('|');
      form.append(input);
      document.body.append(frame, form);
      const loaded = new Promise((resolve) => { frame.onload = resolve; frame.onerror = resolve; });
      form.submit();
      await loaded;
      frame.remove();
      form.remove();
    }
  }
  return readable;
}

const get = async (path) => (await fetch(`http://${server.admin}${path}`)).json();

async function assertUnchanged(from) {
  assert.equal((await get('/admin/kill-switch')).state, 'off', from);
  assert.deepEqual((await get('/admin/overrides')).overrides, [], from);
  assert.equal((await get('/admin/rules/login')).shadow, false, from);
  const { counters } = await get(`/admin/keys/victim?quota=${encodeURIComponent(VICTIM.quota)}`);
  assert.equal(counters.find(({ rule }) => rule === null).remaining, 4, from);
}

test('a page of another origin changes nothing', async () => {
  const body = JSON.stringify(VICTIM);
  const charged = await fetch(`${server.page}/v1/check`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  assert.equal((await charged.json()).remaining, 4);
  const { port } = pages.address();
  // To another host name, and to another port of the same one.
  for (const [page, target] of [['localhost', '127.0.0.1'], ['127.0.0.1', '127.0.0.1'], ['localhost', 'localhost']]) {
    const from = `${page} to ${target}`;
    const context = await chrome.newContext();
    // The visitor has a session of the playground.
    const own = await context.newPage();
    await own.goto(server.page.replace('127.0.0.1', target));
    const tab = await context.newPage();
    const statuses = new Map();
    tab.on('response', (response) => {
      const { host, hostname } = new URL(response.url());
      if (hostname !== target || host.endsWith(`:${port}`)) return;
      const status = response.status();
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    });
    await tab.goto(`http://${page}:${port}/`);
    assert.deepEqual(await tab.evaluate(sendAll, attacks(target)), [], from);
    await assertUnchanged(from);
    assert.deepEqual([...statuses.keys()], [403], `${from}: ${JSON.stringify([...statuses])}`);
    assert.ok(statuses.get(403) >= 40, `${from}: ${statuses.get(403)} requests arrived`);
    await context.close();
  }
});

test('the own pages work under every name of the server', async () => {
  for (const name of ['127.0.0.1', 'localhost']) {
    const page = server.page.replace('127.0.0.1', name);
    const playground = await visit(chrome, `${page}/#log=sliding-window-log+10%2Fh`);
    await playground.page.waitForFunction(() => document.querySelector('#quota-log').value === 'sliding-window-log 10/h');
    await playground.page.click('#card-log button:text-is("Send")');
    await waitForText(playground.page, '#card-log .figures div:nth-child(3) dd', '200 admitted');
    assert.deepEqual(playground.errors, []);
    await playground.end();
    const live = await visit(chrome, server.live.replace('127.0.0.1', name));
    await waitForText(live.page, '#badge', 'live');
    await live.page.fill('#key', 'ann');
    await live.page.click('#search button');
    await waitForText(live.page, '#found tbody tr', /of 5/);
    assert.deepEqual(live.errors, []);
    await live.end();
  }
});

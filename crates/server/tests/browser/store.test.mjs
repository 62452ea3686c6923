// A store outage while the page is open.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, redis, waitForText, serve, visit } from './harness.mjs';

test('the page reports a store outage and recovers', async () => {
  const store = await redis();
  const server = await serve({ store: store.url });
  const chrome = await browser();
  const { page, errors } = await visit(chrome, `${server.page}/#log=sliding-window-log+10%2Fh`);
  const send = () => page.click('#card-log button:text-is("Send")');
  await page.waitForFunction(() => document.querySelector('#quota-log').value === 'sliding-window-log 10/h');
  await waitForText(page, '#badge', 'counters in Redis');
  await send();
  await waitForText(page, '#card-log .figures div:nth-child(3) dd', '200 admitted');
  await waitForText(page, '#card-log dl div:nth-child(1) dd', '9 of 10');

  await store.kill();
  await waitForText(page, '#badge', 'Redis is down: deciding without it');
  await send();
  await waitForText(page, '#card-log .figures div:nth-child(3) dd', '200 without store');
  await waitForText(page, '#card-log .status-badge', 'store down');
  await waitForText(page, '#card-log dl div:nth-child(1) dd', 'unknown');
  await page.waitForFunction(() => document.querySelector('#card-log .diagram').getAttribute('aria-label')
    .startsWith('Unknown: the store does not answer. Last known: 1 request stored'));

  await store.start();
  await waitForText(page, '#badge', 'counters in Redis');
  await send();
  await waitForText(page, '#card-log .figures div:nth-child(3) dd', '200 admitted');
  // It restarted empty, so this is its first request.
  await waitForText(page, '#card-log dl div:nth-child(1) dd', '9 of 10');
  assert.deepEqual(errors, []);

  await chrome.close();
  await server.end();
  await store.end();
});

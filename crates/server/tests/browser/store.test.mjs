// A store that is lost and comes back while the page is open.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, redis, says, serve, visit } from './harness.mjs';

test('the page says when the store is lost, and goes on when it is back', async () => {
  const store = await redis();
  const server = await serve({ store: store.url });
  const chrome = await browser();
  const { page, complaints } = await visit(chrome, `${server.page}/#log=sliding-window-log+10%2Fh`);
  const send = () => page.click('#card-log button:text-is("Send")');
  await page.waitForFunction(() => document.querySelector('#quota-log').value === 'sliding-window-log 10/h');
  await says(page, '#badge', 'counting in Redis');
  await send();
  await says(page, '#card-log .stamp', '200 admitted');
  await says(page, '#card-log dl div:nth-child(1) dd', '9');

  await store.kill();
  await says(page, '#badge', 'Redis is lost: deciding without it');
  await send();
  await says(page, '#card-log .stamp', '200 admitted blindly');
  await says(page, '#card-log dl div:nth-child(1) dd', 'unknown');
  await page.waitForFunction(() => document.querySelector('#card-log .picture').getAttribute('aria-label')
    .startsWith('Unknown, as the store does not answer. Last known: 1 request remembered'));

  await store.start();
  await says(page, '#badge', 'counting in Redis');
  await send();
  await says(page, '#card-log .stamp', '200 admitted');
  // It started empty, so this is the first it knows of.
  await says(page, '#card-log dl div:nth-child(1) dd', '9');
  assert.deepEqual(complaints, []);

  await chrome.close();
  await server.end();
  await store.end();
});

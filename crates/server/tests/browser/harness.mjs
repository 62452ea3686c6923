// Test harness: the real binary, a real Redis, a real Chromium. Each test has its own ports and profile.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after } from 'node:test';

const modules = createRequire(path.join(process.env.TALLYGATE_BROWSER_MODULES, 'package.json'));
const { chromium } = modules('playwright-core');
export const axeSource = modules('axe-core').source;

const BIN = process.env.TALLYGATE_BIN;
const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];
/** Generous, for busy machines. */
export const TIMEOUT_MS = 60000;

/** Starts the server and returns its addresses. */
export async function serve({ store = 'memory', admin: adminAddress = '127.0.0.1:0', args = [] } = {}) {
  const child = spawn(BIN, ['serve', '--listen', '127.0.0.1:0', '--admin', adminAddress, '--store', store, ...args], { stdio: ['ignore', 'pipe', 'ignore'] });
  const line = await firstLine(child);
  const { api, admin } = JSON.parse(line);
  return { child, page: `http://${api}`, live: `http://${admin}/live`, admin, end: () => stop(child, 'SIGTERM') };
}

function firstLine(child) {
  return new Promise((resolve, reject) => {
    const lines = createInterface({ input: child.stdout });
    lines.once('line', (line) => {
      // Keeps the pipe from filling up.
      child.stdout.resume();
      resolve(line);
    });
    child.once('exit', (code) => reject(new Error(`the server exited with ${code}`)));
  });
}

/** Stops a child process and waits for its exit. */
export function stop(child, signal) {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.once('exit', resolve);
    child.kill(signal);
  });
}

/** A Redis server that can be killed and restarted on the same port. */
export async function redis() {
  const folder = mkdtempSync(path.join(tmpdir(), 'tallygate-browser-'));
  const port = await freePort();
  let child;
  const server = {
    url: `redis://127.0.0.1:${port}`,
    async start() {
      child = spawn(process.env.TALLYGATE_REDIS_SERVER ?? 'redis-server',
        ['--port', port, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder], { stdio: 'ignore' });
      while (!(await repliesToPing(port))) {
        assert.equal(child.exitCode, null, 'redis-server exited');
        await new Promise((resolve) => { setTimeout(resolve, 20); });
      }
    },
    kill: () => stop(child, 'SIGKILL'),
    async end() {
      await server.kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  await server.start();
  return server;
}

function repliesToPing(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    socket.once('data', (data) => { resolve(String(data).startsWith('+PONG')); socket.destroy(); });
    socket.once('error', () => resolve(false));
  });
}

/** A TCP proxy in front of an address (`host:port`), which can break what passes. */
export async function proxy(target) {
  const [host, port] = target.split(':');
  const sockets = new Set();
  let garbage = null;
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(port), host);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => { sockets.delete(socket); client.destroy(); upstream.destroy(); });
    }
    client.pipe(upstream);
    upstream.on('data', (data) => {
      client.write(garbage ? Buffer.from(data.toString('latin1').replace('data: {', garbage), 'latin1') : data);
    });
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  return {
    address: `127.0.0.1:${server.address().port}`,
    /** Breaks every connection, in the middle of what it says. */
    cut: () => sockets.forEach((socket) => socket.destroy()),
    /** Replaces the start of events, or with null no longer. */
    garble(text) { garbage = text; },
    end: () => new Promise((resolve) => { sockets.forEach((socket) => socket.destroy()); server.close(resolve); }),
  };
}

export function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** The path of a program. */
function which(program) {
  return execFileSync('sh', ['-c', 'command -v "$0"', program], { encoding: 'utf8' }).trim();
}

export const browser = () => chromium.launch({ executablePath: which(process.env.TALLYGATE_CHROMIUM ?? 'chromium'), args: FLAGS });

/** Starts a server and a browser for all tests of a file. */
export async function setUp() {
  const server = await serve();
  const chrome = await browser();
  after(async () => {
    await chrome.close();
    await server.end();
  });
  return { server, chrome };
}

/** Opens a page as a new visitor; `errors` collects errors, warnings and requests to other hosts. */
export async function visit(chrome, url, options = {}) {
  const context = await chrome.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const errors = [];
  const { host } = new URL(url);
  page.on('pageerror', (error) => errors.push(`uncaught: ${error.message}`));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) errors.push(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (new URL(request.url()).host !== host) errors.push(`request to another host: ${request.url()}`);
  });
  await page.goto(url);
  return { page, context, errors, end: () => context.close() };
}

/** Waits until the text of an element matches. */
export async function waitForText(page, selector, expected) {
  const pattern = expected instanceof RegExp ? { source: expected.source } : { text: expected };
  await page.waitForFunction(([target, { source, text }]) => {
    const actual = document.querySelector(target)?.textContent;
    if (actual === undefined) return false;
    return source === undefined ? actual === text : new RegExp(source).test(actual);
  }, [selector, pattern]);
}

/** The output of `tallygate replay` for requests at these times. */
export function replay(quota, times) {
  const input = times.map((t_us) => JSON.stringify({ t_us, key: 'a' })).join('\n');
  const output = execFileSync(BIN, ['replay', '--quota', quota], { input, encoding: 'utf8' });
  return output.trim().split('\n').map((line) => JSON.parse(line));
}

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import * as http from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { Cloche, ConnectionError, NotFoundError, ProtocolError, RateLimitError, TimeoutError } from '@cloche/sdk';

type Handler = (req: http.IncomingMessage, res: http.ServerResponse, n: number) => void;

/* A server that answers as told: the daemon cannot be asked to fail in each of these ways. */
async function serve(t: TestContext, handler: Handler, listen: string | number = 0) {
  let n = 0;
  const server = http.createServer((req, res) => handler(req, res, ++n));
  await new Promise<void>((resolve) =>
    typeof listen === 'string' ? server.listen(listen, resolve) : server.listen(listen, '127.0.0.1', resolve),
  );
  const address = server.address() as AddressInfo | string;
  const stop = (): void => {
    server.closeAllConnections();
    server.close();
  };
  t.after(stop);
  return {
    url: typeof address === 'string' ? '' : `http://127.0.0.1:${address.port}`,
    calls: () => n,
    stop,
  };
}

function json(res: http.ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  res.writeHead(status, { 'content-type': 'application/json', ...headers });
  res.end(JSON.stringify(body));
}

const box = { id: 'abc', name: 'abc', state: 'running' };

test('a create that is refused for now is repeated under the same key', async (t) => {
  const keys: unknown[] = [];
  const s = await serve(t, (req, res, n) => {
    keys.push(req.headers['idempotency-key']);
    if (n < 3) json(res, 503, { error: { code: 'exhausted', message: 'no room' } }, { 'retry-after': '0' });
    else json(res, 201, box);
  });
  const client = new Cloche({ url: s.url, token: 't', retryDelay: 1 });
  assert.equal((await client.sandboxes.create()).id, 'abc');
  assert.equal(s.calls(), 3);
  assert.equal(new Set(keys).size, 1);
  assert.ok(keys[0]);
  client.close();
});

test('Retry-After is honoured', async (t) => {
  const s = await serve(t, (_req, res, n) =>
    n === 1 ? json(res, 429, { error: { code: 'rate', message: 'slow down' } }, { 'retry-after': '1' }) : json(res, 200, box),
  );
  const client = new Cloche({ url: s.url, retryDelay: 1 });
  const t0 = Date.now();
  await client.sandboxes.get('abc');
  assert.ok(Date.now() - t0 >= 990);
  client.close();
});

test('a quota, and more patience than anybody has, are not waited for', async (t) => {
  const s = await serve(t, (req, res) =>
    req.url?.endsWith('long')
      ? json(res, 429, { error: { code: 'rate', message: 'x' } }, { 'retry-after': '3600' })
      : json(res, 429, { error: { code: 'quota', message: 'ten sandboxes are ten' } }),
  );
  const client = new Cloche({ url: s.url, retryDelay: 1 });
  await assert.rejects(client.sandboxes.create(), (e) => e instanceof RateLimitError && e.code === 'quota');
  await assert.rejects(client.sandboxes.get('long'), (e) => e instanceof RateLimitError && e.retryAfter === 3_600_000);
  assert.equal(s.calls(), 2);
  client.close();
});

test('a broken connection repeats what may happen twice, and nothing else', async (t) => {
  const s = await serve(t, (req, res, n) => {
    if (n % 2 === 1) req.socket.destroy();
    else json(res, 200, box);
  });
  const client = new Cloche({ url: s.url, retryDelay: 1 });
  const sandbox = await client.sandboxes.get('abc');
  assert.equal(s.calls(), 2);
  await assert.rejects(sandbox.exec('echo once'), ConnectionError);
  assert.equal(s.calls(), 3);
  client.close();
});

test('a delete whose first answer was lost does not complain that it worked', async (t) => {
  const s = await serve(t, (req, res, n) => {
    if (n === 1) req.socket.destroy();
    else json(res, 404, { error: { code: 'not_found', message: 'gone' } });
  });
  const client = new Cloche({ url: s.url, retryDelay: 1 });
  await client.sandboxes.delete('abc');
  await assert.rejects(client.sandboxes.delete('abc'));
  client.close();
});

test('nobody listening is a ConnectionError with a remedy, after the tries', async (t) => {
  const s = await serve(t, () => undefined);
  s.stop();
  const client = new Cloche({ url: s.url, retries: 2, retryDelay: 1 });
  await assert.rejects(
    client.sandboxes.get('x'),
    (e) => e instanceof ConnectionError && (e.cause as NodeJS.ErrnoException).code === 'ECONNREFUSED' && /serve/.test(e.remedy ?? ''),
  );
});

test('a url without a scheme, and TLS where none is spoken, are told with what to write', async (t) => {
  assert.throws(() => new Cloche({ url: 'localhost:7070' }), /http:\/\/HOST:PORT/);
  const s = await serve(t, () => undefined);
  const client = new Cloche({ url: s.url.replace('http:', 'https:'), retries: 0 });
  await assert.rejects(client.sandboxes.get('x'), (e) => e instanceof ConnectionError && /http:\/\//.test(e.remedy ?? ''));
  client.close();
});

test('an answer that does not come, or never ends, times out', async (t) => {
  const s = await serve(t, (req, res) => {
    if (req.url === '/v1/info') {
      res.writeHead(200);
      res.write('{"version":');
    }
  });
  const client = new Cloche({ url: s.url, timeout: 100, retries: 3 });
  await assert.rejects(client.whoami(), TimeoutError);
  await assert.rejects(client.info(), TimeoutError);
  assert.equal(s.calls(), 2);
  client.close();
});

test('an abort ends a call, a wait between tries, and a stream', async (t) => {
  const s = await serve(t, (req, res) => {
    if (req.url === '/v1/whoami') json(res, 503, {}, { 'retry-after': '30' });
    if (req.url === '/v1/events') {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      res.write('event: sandbox.created\ndata: {"sandbox":"a"}\n\n');
    }
  });
  const client = new Cloche({ url: s.url });
  const reason = new Error('enough');
  const soon = (): AbortSignal => {
    const c = new AbortController();
    setTimeout(() => c.abort(reason), 50);
    return c.signal;
  };
  await assert.rejects(client.info({ signal: soon() }), reason);
  await assert.rejects(client.whoami({ signal: soon() }), reason);
  await assert.rejects(client.info({ signal: AbortSignal.abort(reason) }), reason);
  const seen: string[] = [];
  await assert.rejects(async () => {
    for await (const e of client.events({ signal: soon() })) seen.push(e.type);
  });
  assert.deepEqual(seen, ['sandbox.created']);
  client.close();
});

test('a body is sent as it comes, and not to the end when the answer is there', async (t) => {
  const s = await serve(t, (req, res) => {
    let got = 0;
    req.on('data', (d: Buffer) => {
      got += d.length;
      if (req.url!.includes('small') || res.headersSent) return;
      if (got > 100_000) json(res, 413, { error: { code: 'too_large', message: 'enough' } });
    });
    req.on('end', () => json(res, 200, { path: '/x', size: got }));
  });
  const client = new Cloche({ url: s.url });
  const sandbox = await import('@cloche/sdk').then(({ Sandbox }) => new Sandbox(client.transport, box));
  let produced = 0;
  async function* bytes(n: number) {
    for (let i = 0; i < n; i++) {
      produced++;
      yield Buffer.alloc(65536, i);
    }
  }
  assert.equal((await sandbox.files.write('small', bytes(3))).size, 3 * 65536);
  produced = 0;
  await assert.rejects(sandbox.files.write('large', bytes(1_000_000)), /enough/);
  assert.ok(produced < 5000, `produced ${produced}`);
  async function* failing() {
    yield Buffer.from('x');
    throw new Error('disk on fire');
  }
  await assert.rejects(sandbox.files.write('small', failing()), /disk on fire/);
  client.close();
});

test('pages are asked for as the loop goes on', async (t) => {
  const urls: string[] = [];
  const s = await serve(t, (req, res, n) => {
    urls.push(req.url!);
    json(res, 200, { sandboxes: [{ ...box, id: `s${n}` }], next: n < 3 ? `c${n}` : null });
  });
  const client = new Cloche({ url: s.url });
  const ids: string[] = [];
  for await (const x of client.sandboxes.list({ state: 'running', metadata: { 'a b': '1' }, pageSize: 1 })) {
    ids.push(x.id);
    assert.equal(s.calls(), ids.length);
  }
  assert.deepEqual(ids, ['s1', 's2', 's3']);
  assert.equal(urls[0], '/v1/sandboxes?state=running&limit=1&metadata.a%20b=1');
  assert.match(urls[1]!, /cursor=c1$/);
  client.close();
});

test('unix sockets, by option or url', async (t) => {
  const dir = await mkdtemp('/var/tmp/cls-');
  const s = await serve(t, (_req, res) => json(res, 200, { status: 'ok' }), join(dir, 's'));
  for (const o of [{ socketPath: join(dir, 's') }, { url: `unix:${join(dir, 's')}` }, { url: `unix://${join(dir, 's')}` }]) {
    const client = new Cloche(o);
    assert.equal((await client.health()).status, 'ok');
    client.close();
  }
  s.stop();
  await rm(dir, { recursive: true });
});

test("somebody else's fetch does the calls", async (t) => {
  const s = await serve(t, (req, res) => json(res, req.method === 'DELETE' ? 404 : 200, req.method === 'DELETE' ? { error: { code: 'not_found' } } : box));
  let used = 0;
  const client = new Cloche({
    url: s.url,
    token: 'any.form:works',
    fetch: (...a) => {
      used++;
      return fetch(...a);
    },
  });
  const sandbox = await client.sandboxes.get('abc');
  await assert.rejects(sandbox.delete(), { status: 404, name: 'NotFoundError' });
  assert.equal(used, 2);
});

test('an answer that is no JSON is an error that says so; one of a proxy keeps its status', async (t) => {
  const s = await serve(t, (_req, res, n) => {
    res.writeHead(n === 1 ? 200 : 500);
    res.end('<html>');
  });
  const client = new Cloche({ url: s.url });
  await assert.rejects(client.info(), ProtocolError);
  await assert.rejects(client.info(), { status: 500 });
  client.close();
});

test('a token with a line break is refused before it is sent', () => {
  assert.throws(() => new Cloche({ token: 'abc\n' }), /line break/);
});

/* An exec that runs; @output answers who follows it. */
async function followed(t: TestContext, output: Handler) {
  let n = 0;
  const s = await serve(t, (req, res) => {
    if (req.method === 'POST') json(res, 201, { id: 'x' });
    else if (req.url?.includes('/output?')) output(req, res, ++n);
    else json(res, 200, box);
  });
  const client = new Cloche({ url: s.url });
  t.after(() => client.close());
  return (await client.sandboxes.get('abc')).background('sleep 999');
}

test('output of a quiet command that is no longer followed leaves no connection open', { timeout: 10_000 }, async (t) => {
  let closed: Promise<unknown> = Promise.resolve();
  const exec = await followed(t, (_req, res, n) => {
    closed = new Promise((resolve) => res.on('close', resolve));
    res.writeHead(200, { 'x-cloche-offset': '0', 'x-cloche-total': '0', 'x-cloche-state': 'running' });
    if (n === 3) res.write('some');
    else res.flushHeaders();
  });
  (await exec.outputStream({ follow: true })).destroy();
  await closed;
  const reading = await exec.outputStream({ follow: true });
  reading.resume();
  setTimeout(() => reading.destroy(), 50);
  await closed;
  for await (const data of await exec.outputStream({ follow: true })) {
    assert.equal(String(data), 'some');
    break;
  }
  await closed;
});

test('a followed exec that is removed right after its end has ended, unless output is missing', async (t) => {
  let total = 4;
  const exec = await followed(t, (_req, res, n) => {
    if (n % 2 === 0) return json(res, 404, { error: { code: 'not_found', message: 'no such exec' } });
    res.writeHead(200, { 'x-cloche-offset': '0', 'x-cloche-total': String(total), 'x-cloche-state': 'running' });
    res.end('some');
  });
  const all = async (): Promise<string> => {
    let text = '';
    for await (const data of await exec.outputStream({ follow: true })) text += String(data);
    return text;
  };
  assert.equal(await all(), 'some');
  total = 5;
  await assert.rejects(all(), NotFoundError);
});

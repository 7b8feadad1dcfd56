import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  ClocheError,
  ConflictError,
  InvalidError,
  NotFoundError,
  RateLimitError,
  UnauthorizedError,
  type Cloche,
} from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let client: Cloche;

before(async () => {
  daemon = await startDaemon();
  client = daemon.client();
});
after(() => daemon?.stop());

test('a sandbox is made, found, changed and deleted', async () => {
  const s = await client.sandboxes.create({
    name: 'first',
    cpus: 1,
    memory: '256M',
    pids: 64,
    env: { GREETING: 'hello' },
    metadata: { user_id: '7' },
    timeout: 600,
  });
  assert.equal(s.name, 'first');
  assert.equal(s.state, 'running');
  assert.equal(s.memory, 256 * 1024 * 1024);
  assert.deepEqual(s.metadata, { user_id: '7' });
  assert.equal(typeof s.enforced, 'object');
  assert.ok(s.expiresAt);
  assert.equal((await client.sandboxes.get('first')).id, s.id);
  assert.equal((await s.exec('echo $GREETING')).stdout, 'hello\n');

  const before = Date.parse(s.expiresAt!);
  await s.extend(3600);
  assert.ok(Date.parse(s.expiresAt!) > before);
  await s.update({ name: 'second', metadata: { user_id: '8' } });
  assert.equal(s.name, 'second');
  await assert.rejects(client.sandboxes.get('first'), NotFoundError);

  const found: string[] = [];
  for await (const x of client.sandboxes.list({ metadata: { user_id: '8' } })) found.push(x.id);
  assert.deepEqual(found, [s.id]);

  await s.delete();
  await assert.rejects(s.refresh(), (e) => e instanceof NotFoundError && e.code === 'not_found' && e.requestId !== null);
});

test('a list goes on over its pages', async () => {
  const made = await Promise.all([1, 2, 3, 4, 5].map((i) => client.sandboxes.create({ metadata: { page: 'yes', i: `${i}` } })));
  const seen = new Set<string>();
  for await (const s of client.sandboxes.list({ metadata: { page: 'yes' }, pageSize: 2 })) seen.add(s.id);
  assert.deepEqual([...seen].sort(), made.map((s) => s.id).sort());
  await Promise.all(made.map((s) => s.delete()));
});

test('a key always reaches the same sandbox, an idempotency key the same answer', async () => {
  const a = await client.sandboxes.create({ key: 'user-1' });
  const b = await client.sandboxes.create({ key: 'user-1' });
  assert.equal(a.id, b.id);
  const c = await client.sandboxes.create({ idempotencyKey: 'once' });
  const d = await client.sandboxes.create({ idempotencyKey: 'once' });
  assert.equal(c.id, d.id);
  await assert.rejects(client.sandboxes.create({ idempotencyKey: 'once', cpus: 0.5 }), ConflictError);
  await Promise.all([a.delete(), c.delete()]);
});

test('pause freezes, resume thaws', async () => {
  const s = await client.sandboxes.create();
  await s.pause();
  assert.equal(s.state, 'paused');
  await assert.rejects(s.exec('true'), ConflictError);
  await s.resume();
  assert.equal((await s.exec('echo back')).stdout, 'back\n');
  const stats = await s.stats();
  assert.ok(stats.memory > 0);
  assert.ok(stats.diskLimit > 0);
  await s.delete();
});

test('errors are typed and say what they know', async () => {
  await assert.rejects(client.sandboxes.create({ cpus: -1 }), InvalidError);
  await assert.rejects(client.sandboxes.create({ name: '../x' }), InvalidError);
  await assert.rejects(daemon.client({ token: 'wrong' }).info(), UnauthorizedError);
  await client.sandboxes.create({ name: 'taken' });
  await assert.rejects(client.sandboxes.create({ name: 'taken' }), (e) => e instanceof ConflictError && e.status === 409);
  await client.sandboxes.delete('taken');
});

test('events tell what happened to it', async () => {
  const s = await client.sandboxes.create();
  const stop = new AbortController();
  const types: string[] = [];
  const seen = (async () => {
    for await (const e of s.events({ signal: stop.signal })) {
      types.push(e.type);
      if (e.type === 'exec.ended') return;
    }
  })();
  // The stream may stand a moment later than asked for; every round makes an event.
  for (let i = 0; i < 50 && !types.includes('exec.ended'); i++) await s.exec('true');
  await Promise.race([seen, new Promise((_, no) => setTimeout(() => no(new Error(`only ${types}`)), 10_000).unref())]);
  assert.ok(types.includes('exec.ended'));
  stop.abort();
  await s.delete();
});

test('whoami, version, health, info, metrics', async () => {
  assert.equal((await client.health()).status, 'ok');
  assert.equal((await client.version()).apiVersion, 1);
  assert.equal((await client.whoami()).tenant, 'default');
  const info = await client.info();
  assert.ok(info.isolation.includes('container'));
  assert.match(await client.metrics(), /^# HELP cloche_/m);
});

test('tokens, tenants and audit', async () => {
  const tenant = await client.tenants.create({ id: 'acme', quotas: { sandboxes: 1 } });
  assert.equal(tenant.id, 'acme');
  const token = await client.tokens.create({ tenant: 'acme', name: 'agent', scope: 'sandbox' });
  assert.match(token.token, /^cloche_/);
  const theirs = daemon.client({ token: token.token });
  const s = await theirs.sandboxes.create();
  await assert.rejects(theirs.sandboxes.create(), (e) => e instanceof ClocheError && e.code === 'quota');
  const kinds: string[] = [];
  for await (const r of client.audit.list({ sandbox: s.id })) kinds.push(r.kind);
  assert.ok(kinds.includes('sandbox.create'));
  assert.equal((await client.audit.verify()).ok, true);
  await s.delete();
  await client.tokens.revoke(token.id);
  await assert.rejects(theirs.whoami(), UnauthorizedError);
});

test('a rate limit is waited for', async () => {
  const token = await client.tokens.create({ scope: 'sandbox', rate: { points: 3, window: 1, block: 1 } });
  const slow = daemon.client({ token: token.token, retryDelay: 1 });
  const t0 = Date.now();
  for (let i = 0; i < 5; i++) await slow.whoami();
  assert.ok(Date.now() - t0 >= 500);
  const hasty = daemon.client({ token: token.token, retries: 0 });
  await assert.rejects(
    async () => {
      for (let i = 0; i < 5; i++) await hasty.whoami();
    },
    (e) => e instanceof RateLimitError && e.code === 'rate' && (e.retryAfter ?? 0) > 0,
  );
});

test('the unix socket needs no token, and carries WebSockets', async () => {
  const local = daemon.client({ url: `unix:${daemon.data}/cloche.sock`, token: '' });
  const s = await local.sandboxes.create();
  const exec = await s.start(['cat'], { stdin: true });
  exec.stdin.end('by socket');
  assert.equal((await exec.wait()).stdout, 'by socket');
  await s.delete();
});

test('a sandbox that leaves its block is deleted', async () => {
  if (typeof Symbol.asyncDispose !== 'symbol') return; // before node 18.18 the language has no such thing
  const s = await client.sandboxes.create();
  await s[Symbol.asyncDispose]();
  await assert.rejects(client.sandboxes.get(s.id), NotFoundError);
  await s[Symbol.asyncDispose]();
});

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ConflictError, NotFoundError, RefusedError, type Cloche } from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let client: Cloche;

before(async () => {
  daemon = await startDaemon();
  client = daemon.client();
});
after(() => daemon?.stop());

test('a template says what a create gets', async () => {
  const t = await client.templates.set('tool', {
    memory: '64M',
    env: { COLOUR: 'red', MY_KEY: 'x' },
    start: { shell: 'echo begun > /tmp/begun' },
    description: 'a tool',
  });
  assert.deepEqual([t.name, t.version, t.description, t.warm], ['tool', 1, 'a tool', null]);
  const s = await client.sandboxes.create({ template: 'tool', env: { SIZE: 'big' } });
  assert.deepEqual([s.memory, s.template, s.pooled], [64 << 20, 'tool', false]);
  const r = await s.exec('echo $COLOUR $MY_KEY $SIZE; until cat /tmp/begun 2>/dev/null; do sleep 0.01; done');
  assert.equal(r.stdout, 'red x big\nbegun\n');
  assert.equal((await client.templates.set('tool', { memory: '96M' })).version, 2);
  assert.deepEqual((await client.templates.list()).map((x) => x.name), ['tool']);
  assert.equal((await client.templates.get('tool')).version, 2);
  await client.templates.delete('tool');
  await assert.rejects(client.templates.get('tool'), NotFoundError);
  await assert.rejects(client.sandboxes.create({ template: 'tool' }), NotFoundError);
  await s.delete();
});

test('one that begins with a checkpoint', async () => {
  const base = await client.sandboxes.create();
  await base.exec('echo one > data');
  const c = await base.checkpoint('golden');
  await base.delete();
  assert.equal((await client.templates.set('golden', { checkpoint: c.id })).checkpoint, c.id);
  const s = await client.sandboxes.create({ template: 'golden' });
  assert.equal((await s.exec('cat data')).stdout, 'one\n');
  await s.delete();
  await client.templates.delete('golden');
  await client.checkpoints.delete(c);
});

test('a pool has them ready, each once', async () => {
  await client.templates.set('small', { memory: '64M' });
  const p = await client.pools.set('ready', { template: 'small', min: 2 });
  assert.deepEqual([p.name, p.template, p.min], ['ready', 'small', 2]);
  for (const end = Date.now() + 20_000; (await client.pools.get('ready')).ready < 2; ) {
    assert.ok(Date.now() < end, 'none is made ready');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const [a, b] = [await client.sandboxes.create({ template: 'small' }), await client.sandboxes.create({ template: 'small' })];
  assert.deepEqual([a.pooled, b.pooled, a.id === b.id], [true, true, false]);
  const [now] = await client.pools.list();
  assert.equal(now!.served, 2);
  await assert.rejects(client.templates.delete('small'), ConflictError);
  await client.pools.delete('ready');
  assert.equal((await a.exec('echo alive')).stdout, 'alive\n');
  await Promise.all([a, b].map((s) => s.delete()));
  await client.templates.delete('small');
});

test('warm code has run before the sandbox is there', async () => {
  const t = await client.templates.set('warm', { warm: { python: 'import json, decimal' } });
  assert.equal(t.warm?.ready, true);
  const [a, b] = await Promise.all([client.sandboxes.create({ template: 'warm' }), client.sandboxes.create({ template: 'warm' })]);
  const r = await a.exec({ code: 'import sys\nprint("decimal" in sys.modules, __name__)\nprint("oops", file=sys.stderr)\nsys.exit(3)' });
  assert.deepEqual([r.stdout, r.stderr, r.exitCode], ['True __main__\n', 'oops\n', 3]);
  // Random numbers are each one's own.
  const draw = 'import random, secrets\nprint(random.random(), secrets.token_hex(8))';
  assert.notEqual((await a.exec({ code: draw })).stdout, (await b.exec({ code: draw })).stdout);
  const followed = await b.start({ code: 'for i in range(3): print(i)' });
  assert.equal((await followed.wait()).stdout, '0\n1\n2\n');
  await assert.rejects(client.templates.set('broken', { warm: { python: 'import nothing_of_the_sort' } }), (e) => {
    return e instanceof RefusedError && /nothing_of_the_sort/.test(e.message);
  });
  const cold = await client.sandboxes.create();
  await assert.rejects(cold.exec({ code: 'print(1)' }), ConflictError);
  await Promise.all([a, b, cold].map((s) => s.delete()));
  await client.templates.delete('warm');
});

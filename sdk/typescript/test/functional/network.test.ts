import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { InvalidError, NotFoundError, type Cloche } from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let client: Cloche;

before(async () => {
  daemon = await startDaemon();
  client = daemon.client();
});
after(() => daemon?.stop());

const connect = (host: string, port: number) => [
  'python3',
  '-c',
  `import socket\ntry:\n  socket.create_connection(('${host}', ${port}), timeout=10)\n  print('connected')\nexcept OSError as e:\n  print(e)`,
];

test('a policy is given, changed and explained', async () => {
  const s = await client.sandboxes.create({ network: { allow: ['a.test'], budget: { bytesOut: '10M' } } });
  assert.deepEqual([s.network.mode, s.network.allow], ['allow', ['a.test']]);
  const now = await s.getNetwork();
  assert.deepEqual([now.policy.mode, now.policy.budget?.bytesOut], ['allow', 10 << 20]);
  assert.doesNotMatch((await s.exec(connect('b.test', 443))).stdout, /connected/);
  assert.doesNotMatch((await s.exec(connect('192.0.2.1', 443))).stdout, /connected/);
  const why = await s.why();
  assert.equal(why.find((r) => r.to === 'b.test')?.rule, 'b.test');
  assert.ok(why.some((r) => r.to === '192.0.2.1' && r.port === 443));
  const set = await s.setNetwork({ allow: ['a.test', 'b.test:443'] });
  assert.deepEqual([set.policy.allow, set.state, s.network.allow], [['a.test', 'b.test:443'], 'in force', ['a.test', 'b.test:443']]);
  assert.equal((await s.setNetwork('none')).policy.mode, 'none');
  await assert.rejects(s.setNetwork({ allow: ['no name'] }), InvalidError);
  await s.delete();
  await assert.rejects(s.getNetwork(), NotFoundError);
});

test('servers inside are reached', async () => {
  const s = await client.sandboxes.create();
  await s.exec('echo hello > index.html');
  await s.background(['python3', '-m', 'http.server', '8000']);
  let page = await s.ports.fetch(8000);
  for (const end = Date.now() + 20_000; page.status === 502; page = await s.ports.fetch(8000)) {
    assert.ok(Date.now() < end, 'nobody listens');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.deepEqual([page.status, await page.text()], [200, 'hello\n']);
  assert.equal((await s.ports.fetch(8000, 'missing')).status, 404);
  assert.equal((await fetch(s.ports.url(8000))).status, 401);
  const { token, hasToken } = await s.ports.set(8000, { token: true });
  assert.ok(token !== undefined && hasToken);
  assert.equal((await fetch(s.ports.url(8000), { headers: { 'x-cloche-port-token': token } })).status, 200);
  assert.equal((await s.ports.set(8000, { public: true })).public, true);
  assert.equal((await fetch(s.ports.url(8000))).status, 200);
  assert.deepEqual((await s.ports.list()).map((p) => p.port), [8000]);
  await s.ports.remove(8000);
  assert.deepEqual([(await s.ports.get(8000)).public, (await s.ports.list()).length], [false, 0]);
  assert.equal((await fetch(s.ports.url(8000))).status, 401);
  await s.delete();
});

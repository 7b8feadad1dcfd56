/* The other shape: VM handles, argv, streams and a console. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NoidAPIError, NoidClient, NoidValidationError } from '@cloche/sdk/noid';
import { vmName, withNoid, world } from './samples.js';

withNoid();

test('server, identity and abilities', async () => {
  const client = new NoidClient({ baseUrl: `${world.daemon.url}/`, token: world.daemon.token });
  assert.equal((await client.health()).status, 'ok');
  assert.equal((await client.version()).api_version, 1);
  assert.equal(typeof (await client.whoami()).user_id, 'string');
  const caps = await client.capabilities();
  assert.deepEqual([caps.defaults.mem_mib, caps.default_mem_mib, caps.api_version], [2048, 2048, 1]);
  assert.ok(caps.timeouts.exec_timeout_secs > 0);
  client.close();
});

test('a handle runs programs with arguments and environment', async () => {
  const { noid } = world;
  const name = vmName('js');
  const vm = await noid.createVm(name, { cpus: 1, memMib: 512 });
  assert.equal(vm.name, name);
  const r = await vm.exec(['sh', '-c', 'echo "$1 $MY_APP"; id -u', 'sh', 'a  b'], { env: { MY_APP: 'x' } });
  assert.equal(r.stdout, 'a  b x\n0\n');
  assert.equal(r.exit_code, 0);
  assert.equal(r.timed_out, false);
  assert.equal(r.truncated, false);
  const terminal = await vm.exec(['sh', '-c', 'echo to both >&2; test -t 1 && stty size'], { tty: true });
  assert.deepEqual([terminal.stdout, terminal.stderr, terminal.exit_code], ['to both\r\n24 80\r\n', '', 0]);
  assert.equal((await noid.cloche.sandboxes.get(name)).pids, 4096);
  const slow = await noid.vm(name).exec(['sleep', '60'], { timeout: 0.5 });
  assert.equal(slow.exit_code, null);
  assert.equal(slow.timed_out, true);
  const rest = await noid.exec(name, { command: ['printenv', 'K'], env: ['K=V=W'] });
  assert.equal(rest.stdout, 'V=W\n');
  const info = await vm.info();
  assert.deepEqual([info.name, info.state, info.cpus, info.mem_mib], [name, 'running', 1, 512]);
  assert.deepEqual((await noid.listVms()).filter((v) => v.name === name).map((v) => v.mem_mib), [512]);
  await vm.destroy();
  await assert.rejects(noid.getVm(name), (e) => e instanceof NoidAPIError && e.isNotFound() && e.statusCode === 404);
});

test('a spawned command streams', async () => {
  const { noid } = world;
  const vm = await noid.createVm(vmName('js'), { memMib: 256 });
  const cmd = vm.spawn(['sh', '-c', 'for i in 1 2 3; do echo "line $i"; sleep 0.1; done; echo oops >&2; exit 4']);
  const events: unknown[] = [];
  cmd.on('spawn', () => events.push('spawn')).on('exit', (code) => events.push(code));
  await cmd.start();
  assert.equal(cmd.exitCode(), -1);
  let out = '';
  let err = '';
  cmd.stdout.on('data', (d: Buffer) => (out += d.toString()));
  cmd.stderr.on('data', (d: Buffer) => (err += d.toString()));
  assert.equal(await cmd.wait(), 4);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual([out, err, cmd.exitCode(), events], ['line 1\nline 2\nline 3\n', 'oops\n', 4, ['spawn', 4]]);

  const unread = vm.spawn(['sh', '-c', 'head -c 5000000 /dev/zero']);
  await unread.start();
  assert.equal(await unread.wait(), 0);
  const none = vm.spawn(['/no/such']);
  await assert.rejects(async () => {
    await none.start();
    await none.wait();
  }, NoidAPIError);
  await vm.destroy();
});

test('a console is a terminal', async () => {
  const { noid } = world;
  const vm = await noid.createVm(vmName('js'), { memMib: 256 });
  const console_ = vm.console({ env: { CONSOLE_SESSION: 'true' }, rows: 30, cols: 90 });
  await console_.start();
  let out = '';
  const seen = new Promise<void>((resolve) =>
    console_.stdout.on('data', (d: Buffer) => {
      out += d.toString();
      if (/session=true 30 90/.test(out)) resolve();
    }),
  );
  const closed = new Promise((resolve) => console_.once('close', resolve));
  console_.stdin.write('echo "session=$CONSOLE_SESSION $(stty size)"\r');
  await seen;
  console_.close();
  await closed;
  await vm.destroy();
});

test('wrong names and variables are refused before anything is sent', async () => {
  const { noid } = world;
  for (const name of ['', '.x', '-x', 'a..b', 'a/b', 'x'.repeat(65)]) {
    assert.throws(() => noid.vm(name), NoidValidationError);
    await assert.rejects(noid.createVM({ name }), NoidValidationError);
  }
  await assert.rejects(noid.exec('vm', 'true', { env: { 'A B': 'x' } }), NoidValidationError);
});

test('checkpoints of a handle', async () => {
  const { noid } = world;
  const vm = await noid.createVm(vmName('js'), { memMib: 256 });
  await vm.exec(['sh', '-c', 'echo v1 > /root/v']);
  const c = await vm.createCheckpoint({ label: 'before-deploy' });
  assert.deepEqual([c.vm_name, c.label], [vm.name, 'before-deploy']);
  assert.deepEqual((await vm.listCheckpoints()).map((x) => x.id), [c.id]);
  await vm.exec(['sh', '-c', 'echo v2 > /root/v']);
  const copy = await vm.restore(c.id, { newName: vmName('js') });
  assert.equal((await copy.exec(['cat', '/root/v'])).stdout, 'v1\n');
  assert.equal((await vm.exec(['cat', '/root/v'])).stdout, 'v2\n');
  await copy.destroy();
  await vm.destroy();
});

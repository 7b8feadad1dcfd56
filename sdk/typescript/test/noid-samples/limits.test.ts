/* Limits: what a VM is given is all it gets. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { vmName, withNoid, world } from './samples.js';

withNoid();

test('memory beyond the limit ends the command, not the VM', async () => {
  const { noid } = world;
  const name = vmName('limits');
  const vm = await noid.createVM({ name, vcpus: 2, memory: 256 });
  assert.equal(vm.vcpus, 2);
  assert.equal(vm.memory, 256);
  const r = await noid.exec(name, `python3 -c 'b = bytearray(1 << 30); print(len(b))'`, { timeout: 30_000 });
  assert.notEqual(r.exitCode, 0);
  assert.equal(r.stdout, '');
  assert.equal(r.verdict.cause, 'oom');
  assert.equal((await noid.exec(name, 'echo alive')).stdout, 'alive\n');
  await noid.destroyVM(name);
});

test('ulimit inside is heeded', async () => {
  const { noid } = world;
  const name = vmName('limits');
  await noid.createVM({ name, memory: 512 });
  const r = await noid.exec(name, 'ulimit -f 1; head -c 100000 /dev/zero > /tmp/big; echo "code $?"; wc -c < /tmp/big');
  assert.doesNotMatch(r.stdout, /code 0/);
  assert.match(r.stdout, /\n(512|1024)\n$/);
  const v = await noid.exec(name, `ulimit -v 200000; python3 -c 'b = bytearray(400 << 20)' 2>&1 | tail -1`);
  assert.match(v.stdout, /MemoryError/);
  await noid.destroyVM(name);
});

test('a fork bomb hits a wall', async () => {
  const { noid } = world;
  const name = vmName('limits');
  await noid.createVM({ name, memory: 256 });
  await noid.exec(name, 'f() { f | f & }; f; sleep 1', { timeout: 4000 });
  const vm = await noid.getVM(name);
  assert.equal(vm.status, 'running');
  await noid.destroyVM(name);
});

test('a VM says what it is', async () => {
  const { noid } = world;
  const name = vmName('info');
  await noid.createVM({ name });
  const vm = await noid.getVM(name);
  assert.equal(vm.status, 'running');
  assert.deepEqual([vm.vcpus, vm.memory], [1, 2048]);
  assert.ok(['container', 'vm'].includes(vm.isolation));
  assert.ok((await noid.listVMs()).some((v) => v.name === name && v.status === 'running'));
  await noid.destroyVM(name);
});

/* Metrics around an exec: what it cost, in the caller's clock and in the server's. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { vmName, withNoid, world } from './samples.js';

withNoid();

test('durations and usage of every command are known', async () => {
  const { noid } = world;
  const name = vmName('metrics');
  const log: { command: string; ms: number; exitCode: number; cpuMs: number; peak: number }[] = [];
  const measured = async (command: string) => {
    const t0 = performance.now();
    const r = await noid.exec(name, command, { timeout: 30_000 });
    log.push({ command, ms: performance.now() - t0, exitCode: r.exitCode, cpuMs: r.usage.cpuMs, peak: r.usage.memoryPeak });
    return r;
  };
  await noid.createVM({ name, memory: 512 });
  await measured('sleep 0.3');
  await measured(`python3 -c 'b = bytearray(64 << 20)
for i in range(3000000): pass'`);
  await measured('exit 3');
  await noid.destroyVM(name);
  assert.deepEqual(log.map((l) => l.exitCode), [0, 0, 3]);
  assert.ok(log[0]!.ms >= 290 && log[0]!.cpuMs < 150, JSON.stringify(log[0]));
  assert.ok(log[1]!.cpuMs > 20 && log[1]!.peak > 32 << 20, JSON.stringify(log[1]));
});

/* A pool of tool VMs: taken, used, put back to their clean state, used again. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { vmName, withNoid, world } from './samples.js';

withNoid();

class ToolPool {
  #free: string[] = [];
  #waiting: ((name: string) => void)[] = [];

  constructor(private readonly size: number) {}

  async fill(): Promise<void> {
    const { noid } = world;
    await Promise.all(
      Array.from({ length: this.size }, async () => {
        const name = vmName('tool');
        await noid.createVM({ name, memory: 256 });
        await noid.createCheckpoint(name, 'clean');
        this.#free.push(name);
      }),
    );
  }

  async use<T>(work: (name: string) => Promise<T>): Promise<T> {
    const name = this.#free.pop() ?? (await new Promise<string>((resolve) => this.#waiting.push(resolve)));
    try {
      return await work(name);
    } finally {
      await world.noid.restore(name, 'clean');
      const next = this.#waiting.shift();
      if (next) next(name);
      else this.#free.push(name);
    }
  }

  async drain(): Promise<void> {
    await Promise.all(this.#free.map((n) => world.noid.destroyVM(n)));
  }
}

test('a VM that was reset has nothing of the call before, as often as one likes', async () => {
  const pool = new ToolPool(2);
  await pool.fill();
  const calls = Array.from({ length: 6 }, (_, i) =>
    pool.use(async (name) => {
      const r = await world.noid.exec(name, `ls /root/dirt 2>/dev/null; echo ${i} > /root/dirt; cat /root/dirt`);
      return r.stdout;
    }),
  );
  assert.deepEqual(await Promise.all(calls), ['0\n', '1\n', '2\n', '3\n', '4\n', '5\n']);
  await pool.drain();
});

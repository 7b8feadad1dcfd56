import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Collector } from '../../src/exec.js';

test('head and tail are kept, however the bytes are cut, and nothing is counted twice', () => {
  const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  for (const limit of [0, 1, 7, 8, 255, 256, 1000])
    for (const step of [1, 3, 100, 256]) {
      const c = new Collector(limit);
      for (let i = 0; i < 256; i += step) c.add(all.subarray(i, i + step));
      const head = Math.min(256, Math.ceil(limit / 2));
      const tail = Math.min(256 - head, Math.floor(limit / 2));
      assert.deepEqual(c.bytes(), Buffer.concat([all.subarray(0, head), all.subarray(256 - tail)]));
      assert.equal(c.dropped, 256 - head - tail);
    }
});

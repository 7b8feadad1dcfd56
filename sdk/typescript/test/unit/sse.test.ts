import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventParser, readEvents } from '../../src/sse.js';

test('events come out whole however the text is cut', () => {
  const text = ': hello\n\nevent: stdout\ndata: {"data":"a"}\nid: 7\n\ndata: one\r\ndata: two\r\n\r\nevent: x\rdata:  y\r\r';
  for (let step = 1; step <= text.length; step++) {
    const p = new EventParser();
    const got = [];
    for (let i = 0; i < text.length; i += step) got.push(...p.feed(text.slice(i, i + step)));
    // The last CR may be half of a CRLF: it counts with what follows.
    got.push(...p.feed(':\n'));
    assert.deepEqual(got, [
      { event: 'stdout', data: '{"data":"a"}', id: '7' },
      { event: 'message', data: 'one\ntwo', id: '7' },
      { event: 'x', data: ' y', id: '7' },
    ]);
  }
});

test('an event that the end cuts off is dropped', () => {
  assert.deepEqual(new EventParser().feed('data: half\n'), []);
});

test('an event without end is refused', () => {
  const p = new EventParser();
  assert.throws(() => {
    for (let i = 0; i < 40; i++) p.feed('x'.repeat(1024 * 1024));
  });
});

test('a character cut in two between pieces is whole again', async () => {
  const bytes = Buffer.from('data: ü€😀\n\n');
  async function* pieces() {
    for (const b of bytes) yield Buffer.from([b]);
  }
  const got = [];
  for await (const e of readEvents(pieces())) got.push(e.data);
  assert.deepEqual(got, ['ü€😀']);
});

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import * as http from 'node:http';
import type { AddressInfo, Socket as NetSocket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { ConnectionError, NotFoundError, ProtocolError } from '../../src/errors.js';
import { Transport } from '../../src/http.js';
import { encodeFrame, FrameParser, Op, type Socket } from '../../src/ws.js';

/* As a server sends it: not masked. */
function frame(op: number, payload: Uint8Array | string, fin = true): Buffer {
  const b = Buffer.from(payload as string);
  const head =
    b.length < 126
      ? Buffer.from([0, b.length])
      : b.length < 65536
        ? Buffer.from([0, 126, b.length >> 8, b.length & 255])
        : Buffer.concat([Buffer.from([0, 127]), Buffer.from(b.length.toString(16).padStart(16, '0'), 'hex')]);
  head[0] = (fin ? 0x80 : 0) | op;
  return Buffer.concat([head, b]);
}

function unmask(b: Buffer): { op: number; payload: Buffer } {
  const n = b[1]! & 127;
  const head = n < 126 ? 2 : n === 126 ? 4 : 10;
  const mask = b.subarray(head, head + 4);
  return { op: b[0]! & 15, payload: Buffer.from(b.subarray(head + 4).map((x, i) => x ^ mask[i & 3]!)) };
}

test('what is sent is masked and has the shortest head that fits', () => {
  for (const [n, head] of [[0, 2], [125, 2], [126, 4], [65535, 4], [65536, 10]] as const) {
    const payload = Buffer.alloc(n, 7);
    const b = encodeFrame(Op.Binary, payload);
    assert.equal(b.length, head + 4 + n);
    assert.equal(b[1]! & 0x80, 0x80);
    assert.deepEqual(unmask(b).payload, payload);
  }
});

test('frames come out whole however the bytes are cut', () => {
  const all = Buffer.concat([frame(1, 'hi'), frame(2, Buffer.alloc(300, 1)), frame(2, Buffer.alloc(70000, 2)), frame(9, '')]);
  for (const step of [1, 3, 1000, all.length]) {
    const p = new FrameParser();
    const got = [];
    for (let i = 0; i < all.length; i += step) got.push(...p.feed(all.subarray(i, i + step)));
    assert.deepEqual(got.map((f) => [f.op, f.payload.length]), [[1, 2], [2, 300], [2, 70000], [9, 0]]);
  }
});

test('what a server must not send is refused', () => {
  const refused: [string, Buffer][] = [
    ['masked', encodeFrame(Op.Text, Buffer.from('x'))],
    ['reserved bits', Buffer.from([0xc1, 0])],
    ['unknown opcode', Buffer.from([0x83, 0])],
    ['long control frame', frame(9, Buffer.alloc(126))],
    ['control frame in pieces', frame(9, '', false)],
    ['huge', Buffer.from([0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0])],
  ];
  for (const [what, bytes] of refused) assert.throws(() => new FrameParser().feed(bytes), ProtocolError, what);
});

async function serve(t: TestContext, onUpgrade: (socket: NetSocket, req: http.IncomingMessage) => void, wrong = false) {
  const sockets = new Set<NetSocket>();
  const server = http.createServer();
  server.on('upgrade', (req, s) => {
    const socket = s as NetSocket;
    sockets.add(socket);
    socket.on('error', () => undefined);
    if (req.url === '/none') {
      const body = '{"error":{"code":"not_found","message":"no such exec"}}';
      socket.end(`HTTP/1.1 404 Not Found\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
      return;
    }
    const key = (req.headers['sec-websocket-key'] ?? '') + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
    const accept = wrong ? 'AAAA' : createHash('sha1').update(key).digest('base64');
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`,
    );
    onUpgrade(socket, req);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const transport = new Transport({ url, token: 'secret', timeout: 5000, retries: 0, retryDelay: 1 });
  t.after(() => {
    for (const s of sockets) s.destroy();
    server.close();
  });
  return transport;
}

function gather(s: Socket): Promise<{ messages: (string | Buffer)[]; code: number; error?: Error }> {
  const messages: (string | Buffer)[] = [];
  return new Promise((resolve) =>
    s.listen({ message: (m) => messages.push(m), close: (code, _r, error) => resolve({ messages, code, error }) }),
  );
}

test('messages in pieces are joined, pings are answered, the close is clean', async (t) => {
  let auth: string | undefined;
  const sent: { op: number; payload: Buffer }[] = [];
  const transport = await serve(t, (s, req) => {
    auth = req.headers.authorization;
    s.on('data', (d: Buffer) => sent.push(unmask(d)));
    s.write(frame(1, 'Gr', false));
    s.write(frame(9, 'are you there'));
    s.write(frame(0, Buffer.from('üße').subarray(0, 1), false));
    s.write(frame(0, Buffer.from('üße').subarray(1)));
    s.write(frame(2, Buffer.from([1, 2, 3])));
    setTimeout(() => s.write(frame(8, Buffer.from([3, 0xe8]))), 50);
  });
  const r = await gather(await transport.upgrade({ path: '/' }));
  assert.equal(auth, 'Bearer secret');
  assert.equal(r.error, undefined);
  assert.equal(r.code, 1000);
  assert.deepEqual(r.messages, ['Grüße', Buffer.from([1, 2, 3])]);
  assert.equal(sent[0]?.op, Op.Pong);
  assert.equal(sent[0]?.payload.toString(), 'are you there');
});

test('a connection that breaks is told from one that closes', async (t) => {
  const transport = await serve(t, (s) => {
    s.write(frame(1, 'half'), () => s.destroy());
  });
  const r = await gather(await transport.upgrade({ path: '/' }));
  assert.equal(r.code, 1006);
  assert.ok(r.error instanceof Error);
});

test('text that is no UTF-8 ends the connection', async (t) => {
  const transport = await serve(t, (s) => s.write(frame(1, Buffer.from([0xff, 0xfe]))));
  const r = await gather(await transport.upgrade({ path: '/' }));
  assert.ok(r.error instanceof ProtocolError);
  assert.deepEqual(r.messages, []);
});

test('a wrong handshake is refused, and an answer that is none becomes its error', async (t) => {
  const wrong = await serve(t, () => undefined, true);
  await assert.rejects(wrong.upgrade({ path: '/' }), ProtocolError);
  const none = await serve(t, () => undefined);
  await assert.rejects(none.upgrade({ path: '/none' }), (e) => e instanceof NotFoundError);
});

test('sending after the end is an error, not silence', async (t) => {
  const transport = await serve(t, (s) => s.on('data', () => s.destroy()));
  const ws = await transport.upgrade({ path: '/' });
  const over = gather(ws);
  await ws.send('x');
  await over;
  await assert.rejects(ws.send('y'), ConnectionError);
});

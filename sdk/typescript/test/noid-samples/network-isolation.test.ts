/* Network isolation: a VM that is isolated reaches nothing. */
import assert from 'node:assert/strict';
import * as http from 'node:http';
import { networkInterfaces } from 'node:os';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { vmName, withNoid, world } from './samples.js';

withNoid();

test('an isolated VM has no way out, not even to its host', async () => {
  const { noid } = world;
  // A server on the host that would answer, so that silence means isolation and not absence.
  let hits = 0;
  const server = http.createServer((_req, res) => {
    hits++;
    res.end('reached');
  });
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  const { port } = server.address() as AddressInfo;
  const addresses = ['127.0.0.1', ...Object.values(networkInterfaces()).flatMap((l) => (l ?? []).filter((a) => a.family === 'IPv4' && !a.internal).map((a) => a.address))];
  const name = vmName('isolated');
  try {
    const vm = await noid.createVM({ name, memory: 512, network: 'isolated' });
    assert.equal(vm.network, 'none');
    const code = `
import socket
for a in ${JSON.stringify([...addresses, '1.1.1.1', '169.254.169.254'])}:
    s = socket.socket(); s.settimeout(2)
    try:
        s.connect((a, ${port})); print("reached", a)
    except OSError as e:
        print("no", a)
try:
    socket.getaddrinfo("example.com", 80); print("resolved")
except OSError:
    print("no name")
`;
    const r = await noid.exec(name, 'python3 -', { stdin: code, timeout: 60_000 });
    assert.equal(r.stderr, '');
    assert.equal(r.stdout, [...addresses, '1.1.1.1', '169.254.169.254'].map((a) => `no ${a}\n`).join('') + 'no name\n');
    assert.equal(hits, 0);
    // Within itself it may talk.
    const own = await noid.exec(name, `python3 -c '
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
socket.create_connection(s.getsockname()).close(); print("loopback")'`);
    assert.equal(own.stdout, 'loopback\n');
  } finally {
    await noid.destroyVM(name);
    server.close();
  }
});

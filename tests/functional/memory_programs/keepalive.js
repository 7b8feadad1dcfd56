// A server, and a client in another process that keeps its connections: each step asks over all of them again.
const http = require('http'), child = require('child_process'), net = require('net');
if (process.argv[2] !== 'client') {
  const seen = new Map();
  const server = http.createServer((q, r) => {
    const key = q.socket.remotePort;
    seen.set(key, (seen.get(key) || 0) + 1);
    r.end(String(seen.get(key)));
  });
  server.keepAliveTimeout = 0; // a busy machine may take longer than its five seconds
  server.listen(7001, '127.0.0.1', () => child.spawn(process.execPath, [__filename, 'client'], { stdio: 'inherit' }));
} else {
  const agents = Array.from({ length: 5 }, () => new http.Agent({ keepAlive: true, maxSockets: 1 }));
  const ask = agent => new Promise((done, bad) => {
    const q = http.get({ host: '127.0.0.1', port: 7001, agent }, r => {
      let text = '';
      r.on('data', x => { text += x; });
      r.on('end', () => done([Number(text), q.reusedSocket]));
    });
    q.on('error', bad);
  });
  let n = 0;
  net.createServer(s => s.once('data', async () => {
    n += 1;
    let said;
    try {
      const all = await Promise.all(agents.map(ask));
      said = all.every(([count, reused]) => count === n && (n === 1 || reused)) ? `${n} ok` : `failed: ${JSON.stringify(all)}`;
    } catch (e) { said = `failed: ${e}`; }
    s.end(`${said}\n`);
  })).listen(7000, '127.0.0.1');
}

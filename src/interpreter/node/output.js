'use strict';
// What cells print: process.stdout and process.stderr as events, and what child processes write to descriptors 1 and 2, which
// are pipes that end here.
const fs = require('fs');
const os = require('os');
const path = require('path');
const { Writable } = require('stream');
const { StringDecoder } = require('string_decoder');
const childProcess = require('child_process');

const PIECE_MAX = 16 << 10; // characters of one event
const SINGLE_MAX = 1000; // events of one execution; what follows is joined into larger ones
const HELD_MS = 20;
const DRAIN_MS = 5;

class Output {
  constructor(wire, limit) {
    this.wire = wire;
    this.limit = limit;
    this.id = null; // of the execution that runs
    this.sent = this.dropped = this.count = 0;
    this.held = { stdout: '', stderr: '' };
    this.pushed = this.drained = 0;
    this.dirty = false;
    this.captures = [];
  }

  begin(id) {
    this.sent = this.dropped = this.count = 0;
    this.id = id;
  }

  end() {
    this.flush();
    this.id = null;
    return this.dropped;
  }

  // One write is one event, unless there were too many of them.
  put(kind, text) {
    if (this.dirty || Date.now() - this.drained > DRAIN_MS) this.drain();
    this.held[kind] += text;
    if (this.count < SINGLE_MAX || this.held[kind].length >= PIECE_MAX || Date.now() - this.pushed >= HELD_MS) this.push(kind);
    else if (!this.timer) this.timer = setTimeout(() => this.flush(), HELD_MS).unref();
  }

  push(kind) {
    const text = this.held[kind];
    this.held[kind] = '';
    this.pushed = Date.now();
    for (let at = 0; at < text.length;) {
      let end = Math.min(at + PIECE_MAX, text.length);
      if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1])) end++;
      this.event(kind, text.slice(at, end));
      at = end;
    }
  }

  event(kind, text) {
    text = plainText(text);
    const size = Buffer.byteLength(text);
    if (this.sent + size > this.limit) {
      const kept = new StringDecoder('utf8').write(Buffer.from(text).subarray(0, Math.max(this.limit - this.sent, 0)));
      this.dropped += size - Buffer.byteLength(kept);
      this.sent = this.limit;
      text = kept;
    } else {
      this.sent += size;
    }
    if (!text) return;
    this.count++;
    this.wire.send({ type: kind, id: this.id, text });
  }

  flush() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.drain();
    for (const kind of ['stdout', 'stderr']) if (this.held[kind]) this.push(kind);
  }

  drain() {
    this.dirty = false;
    this.drained = Date.now();
    for (const c of this.captures) c.drain();
  }

  // What writes to the descriptors while it is called: its output comes before what the cell prints next. To look at each write
  // would take longer than the write itself.
  watch(module, name) {
    const original = module[name];
    module[name] = (...args) => {
      this.dirty = true;
      return original.apply(module, args);
    };
    Object.defineProperty(module[name], 'name', { value: name });
  }

  // Takes descriptors 1 and 2. Node has no dup2(): a descriptor that was closed is the next that open() returns.
  capture() {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'cloche-kernel-'));
    try {
      const names = ['stdout', 'stderr'].map(kind => path.join(folder, kind));
      if (childProcess.spawnSync('mkfifo', names, { stdio: 'ignore' }).status !== 0) return; // then they are the kernel's descriptor 2
      names.forEach((name, i) => {
        const fd = fs.openSync(name, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
        fs.closeSync(i + 1);
        // Readable, too: one that is not counts as full where the memory of the sandbox is measured (engine/kernel_memory/pipes.c).
        const got = fs.openSync(name, 'r+');
        if (got !== i + 1) throw new Error(`descriptor ${i + 1} was expected, not ${got}`);
        this.captures.push(new Capture(this, path.basename(name), fd));
      });
    } finally {
      fs.rmSync(folder, { recursive: true, force: true });
    }
    for (const name of ['spawnSync', 'execSync', 'execFileSync']) this.watch(childProcess, name);
    for (const name of ['writeSync', 'writevSync', 'writeFileSync', 'appendFileSync']) this.watch(fs, name);
    // Child processes print while the event loop waits, too.
    setInterval(() => this.flush(), HELD_MS).unref();
  }

  streams() {
    for (const [kind, fd] of [['stdout', 1], ['stderr', 2]]) {
      const decoder = new StringDecoder('utf8');
      const stream = new Writable({
        decodeStrings: false,
        write: (chunk, encoding, done) => {
          this.put(kind, typeof chunk === 'string' ? chunk : decoder.write(chunk));
          done();
        },
      });
      stream.fd = fd;
      stream.isTTY = false;
      stream.destroy = stream.end = () => stream; // the next cell prints, too
      Object.defineProperty(process, kind, { value: stream, configurable: true, enumerable: true, writable: true });
    }
  }
}

class Capture {
  constructor(output, kind, fd) {
    this.output = output;
    this.kind = kind;
    this.fd = fd;
    this.decoder = new StringDecoder('utf8');
    this.room = Buffer.alloc(64 << 10);
  }

  drain() {
    for (;;) {
      let n;
      try {
        n = fs.readSync(this.fd, this.room);
      } catch (e) {
        return; // EAGAIN: it is empty
      }
      if (n === 0) return;
      const text = this.decoder.write(this.room.subarray(0, n));
      if (this.output.held[this.kind]) this.output.push(this.kind);
      for (let at = 0; at < text.length; at += PIECE_MAX) this.output.event(this.kind, text.slice(at, at + PIECE_MAX));
    }
  }
}

// Without lone surrogates, which UTF-8 cannot carry.
function plainText(text) {
  return Buffer.from(text, 'utf8').toString('utf8');
}

module.exports = { Output, plainText };

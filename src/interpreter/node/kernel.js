'use strict';
// The kernel for JavaScript and TypeScript: keeps the state of one context. docs/design/0019-interpreter.md is its contract.
//
//   sh -c 'exec node "$0" "$@" 3<&0 4>&1 0</dev/null 1>&2' kernel.js javascript
//
// Requests come from descriptor 3, events go to descriptor 4. The shell moves them there because Node cannot.
const fs = require('fs');
const net = require('net');
const { Console } = require('console');
const { Wire } = require('./wire.js');
const { Output } = require('./output.js');
const { Displays, forCells } = require('./display.js');
const { Cells, ProcessExit } = require('./run.js');
const ask = require('./ask.js');

const REQUESTS = 3, EVENTS = 4;
const OUTPUT_MAX = 16 << 20, RESULT_MAX = 10 << 20;
const HISTORY_MAX = 1000, HISTORY_BYTES = 16 << 20;
const HANGUP_MS = 3000;

class Refusal extends Error {}

class Kernel {
  constructor(language) {
    this.language = language;
    this.wire = new Wire(EVENTS);
    this.output = new Output(this.wire, OUTPUT_MAX);
    this.displays = new Displays(this.wire, this.output, RESULT_MAX);
    this.count = 0;
    this.history = [];
    this.historySize = 0;
    this.waiting = [];
    this.busy = false;
    this.leave = process.exit.bind(process);
  }

  settle() {
    this.output.capture();
    this.output.streams();
    globalThis.console = new Console({ stdout: process.stdout, stderr: process.stderr, colorMode: false });
    this.cells = new Cells(this.language);
    this.displays.begin();
    globalThis.display = forCells(this.displays);
    process.argv.length = 1;
    process.exit = code => {
      throw new ProcessExit(`process.exit(${code === undefined ? '' : code}) ends the cell, not the context`);
    };
    process.on('SIGINT', () => {
      if (this.cells.interrupt) this.cells.interrupt();
    });
    const stray = what => e => {
      this.output.put('stderr', `${what}\n${this.cells.describe(e, '').traceback}`);
    };
    process.on('uncaughtException', stray('Uncaught exception in a callback:'));
    process.on('unhandledRejection', stray('Unhandled rejection of a promise:'));
  }

  serve() {
    this.wire.send({ type: 'ready', protocol: 1, language: this.language, version: process.version.slice(1), pid: process.pid });
    const stream = this.stream = new net.Socket({ fd: REQUESTS, readable: true, writable: false });
    stream.on('data', piece => {
      try {
        this.waiting.push(...this.wire.requests(piece));
      } catch (e) {
        this.fail(65, e.message);
      }
      this.next();
    });
    stream.on('error', e => this.fail(74, `the requests cannot be read: ${e.message}`));
    stream.on('end', () => {
      if (this.wire.size) this.fail(65, 'the stream ended inside a request');
      this.ended = true;
      if (this.cells.interrupt) this.cells.interrupt();
      if (this.busy) setTimeout(() => this.leave(0), HANGUP_MS);
      this.next();
    });
  }

  fail(code, message) {
    this.output.flush();
    process.reallyExit(code, message);
  }

  async next() {
    if (this.busy) return;
    this.busy = true;
    while (this.waiting.length) {
      this.stream.pause();
      await this.answer(this.waiting.shift());
    }
    this.busy = false;
    if (this.ended) this.leave(0);
    this.stream.resume();
  }

  async answer(request) {
    const { type, id = null } = request;
    const calls = { execute: this.execute, start: this.start, complete: this.complete, is_complete: this.isComplete,
      inspect: this.inspect, history: this.past };
    try {
      if (request.problem !== undefined && type === undefined) throw new Refusal(request.problem);
      if (!Object.prototype.hasOwnProperty.call(calls, type)) throw new Refusal(`there is no request ${JSON.stringify(type)}`);
      const fields = await calls[type].call(this, request, id);
      if (fields) this.wire.send({ type: 'reply', id, ...fields });
    } catch (e) {
      if (!(e instanceof Refusal)) throw e;
      this.wire.send({ type: 'refused', id, message: e.message });
    }
  }

  start(request) {
    const env = environment(request);
    for (const name of ['output_max', 'result_max']) {
      const value = request[name];
      if (value !== undefined && value !== null && !(Number.isInteger(value) && value > 0 && value <= 1 << 30)) {
        throw new Refusal(`${name} must be from 1 to ${1 << 30}`);
      }
    }
    if (request.restrict !== undefined && request.restrict !== null) throw new Refusal('restrict is for Python contexts only');
    if (request.cwd !== undefined && request.cwd !== null) {
      if (typeof request.cwd !== 'string') throw new Refusal('cwd must be a string');
      try {
        process.chdir(request.cwd);
      } catch (e) {
        throw new Refusal(`cwd: ${request.cwd}: ${e.message}`);
      }
    }
    setEnvironment(env);
    this.output.limit = request.output_max || this.output.limit;
    this.displays.limit = request.result_max || this.displays.limit;
    return {};
  }

  async execute(request, id) {
    const code = codeOf(request);
    const env = environment(request);
    this.count++;
    const used = process.cpuUsage();
    const name = `cell-${this.count}`;
    this.note(code);
    this.output.begin(id);
    this.displays.begin();
    const before = setEnvironment(env), score = setScore('1000');
    let problem = null;
    try {
      const { value } = await this.cells.run(code, name, () => this.wire.send({ type: 'begun', id }));
      if (this.displays.waiting.size) await this.cells.interrupted(Promise.all(this.displays.waiting));
      if (value !== undefined) await this.displays.show(value, true);
    } catch (e) {
      problem = this.cells.describe(e, name);
    }
    this.displays.waiting.clear();
    setEnvironment(before);
    const dropped = this.output.end();
    setScore(score);
    if (problem) this.wire.send({ type: 'error', id, ...problem });
    const { user, system } = process.cpuUsage(used);
    const usage = { cpu_ms: Math.round((user + system) / 1000), memory_peak: process.resourceUsage().maxRSS * 1024 };
    this.wire.send({ type: 'end', id, status: problem ? 'error' : 'ok', execution_count: this.count, dropped, usage });
  }

  note(code) {
    this.history.push({ execution_count: this.count, code });
    this.historySize += code.length;
    while (this.history.length > HISTORY_MAX || this.historySize > HISTORY_BYTES) this.historySize -= this.history.shift().code.length;
  }

  complete(request) {
    return ask.complete(this.cells, codeOf(request), cursorOf(request));
  }

  isComplete(request) {
    return ask.isComplete(codeOf(request), code => this.cells.toScript(code));
  }

  inspect(request) {
    return ask.inspect(this.cells, codeOf(request), cursorOf(request));
  }

  past(request) {
    const last = request.last === undefined || request.last === null ? HISTORY_MAX : request.last;
    if (!Number.isInteger(last)) throw new Refusal('last must be a number');
    return { cells: last > 0 ? this.history.slice(-last) : [] };
  }
}

function codeOf(request) {
  if (typeof request.code !== 'string') throw new Refusal('code must be a string');
  return request.code;
}

function cursorOf(request) {
  const cursor = request.cursor;
  if (cursor !== undefined && cursor !== null && !Number.isInteger(cursor)) throw new Refusal('cursor must be a number');
  return cursor;
}

function environment(request) {
  const env = request.env;
  if (env === undefined || env === null) return {};
  if (typeof env !== 'object' || Array.isArray(env)) throw new Refusal('env must be an object');
  for (const [name, value] of Object.entries(env)) {
    if (!name || /[=\0]/.test(name) || !(value === null || typeof value === 'string' && !value.includes('\0'))) {
      throw new Refusal(`env: ${JSON.stringify(name)} must be a name with a string or null`);
    }
  }
  return env;
}

// Sets variables, or removes those that are null. Returns what undoes it.
function setEnvironment(changes) {
  const before = {};
  for (const [name, value] of Object.entries(changes)) {
    before[name] = process.env[name] === undefined ? null : process.env[name];
    if (value === null) delete process.env[name];
    else process.env[name] = value;
  }
  return before;
}

// When the memory of the sandbox is full, a context that runs code is ended rather than one that waits. Returns what it was.
function setScore(value) {
  if (value === null) return null;
  let fd = -1, before = null;
  try {
    fd = fs.openSync('/proc/self/oom_score_adj', 'r+');
    before = fs.readFileSync(fd, 'latin1');
    fs.writeSync(fd, value, 0);
  } catch (e) {
    before = null;
  }
  if (fd >= 0) fs.closeSync(fd);
  return before;
}

const language = process.argv[2] === 'typescript' ? 'typescript' : 'javascript';
try {
  fs.fstatSync(REQUESTS);
  fs.fstatSync(EVENTS);
} catch (e) {
  fs.writeSync(2, 'cloche kernel: descriptors 3 and 4 must be the requests and the events\n');
  process.reallyExit(64);
}
const kernel = new Kernel(language);
kernel.settle();
kernel.serve();

import { Readable, Writable } from 'node:stream';
import { TextDecoder } from 'node:util';
import { abortReason, ClocheError, ConnectionError, errorFromWire, NotFoundError, ProtocolError } from './errors.js';
import { collect, Guard, type Transport } from './http.js';
import { readEvents } from './sse.js';
import type {
  BackgroundOptions,
  CallOptions,
  Command,
  ExecInfo,
  ExecOptions,
  OutputChunk,
  OutputGap,
  Result,
  Signal,
  StartOptions,
} from './types.js';
import { fromWire, toWire } from './wire.js';
import type { Socket } from './ws.js';

/* Output nobody has taken yet; beyond it the connection is not read, and the command waits. */
const HIGH_WATER = 1024 * 1024;
const STDIN_PIECE = 64 * 1024;
const WAIT_SECONDS = 30;

export type ExecRequestOptions = StartOptions & { background?: boolean; binary?: boolean; restart?: 'no' | 'always' };

/** The body of a request that starts an exec. */
export function execBody(cmd: Command, o: ExecRequestOptions): unknown {
  const body: Record<string, unknown> = {
    cwd: o.cwd,
    env: o.env,
    user: o.user,
    timeout: o.timeout,
    cpuTime: o.cpuTime,
    outputLimit: o.outputLimit,
    output: o.output,
    nofile: o.nofile,
    tty: o.tty || undefined,
    background: o.background || undefined,
    restart: o.restart,
    encoding: o.binary ? 'base64' : undefined,
  };
  if (typeof cmd === 'string') body.shell = cmd;
  else if ('code' in cmd) body.code = cmd.code;
  else body.cmd = [...cmd];
  if (typeof o.stdin === 'string') body.stdin = o.stdin;
  else if (o.stdin instanceof Uint8Array) body.stdinBase64 = Buffer.from(o.stdin).toString('base64');
  else if (o.stdin === true && !o.tty) body.stdinOpen = true;
  return toWire(body);
}

/* So much stdin goes into a request of JSON. */
const STDIN_IN_JSON = 2 * 1024 * 1024;

/** The body of a request whose stdin is too long for JSON: it follows the line of the request. Undefined: it is not. */
export function inputBody(cmd: Command, { stdin, ...rest }: ExecOptions): Buffer | undefined {
  if (stdin === undefined || Buffer.byteLength(stdin) <= STDIN_IN_JSON) return undefined;
  return Buffer.concat([Buffer.from(`${JSON.stringify(execBody(cmd, rest))}\n`), Buffer.from(stdin as Uint8Array)]);
}

/** A Result as users see it. */
export function readResult(wire: unknown): Result {
  const w = fromWire<Result & { stdoutBase64?: string; stderrBase64?: string }>(wire);
  const { stdoutBase64, stderrBase64, ...r } = w;
  if (stdoutBase64 !== undefined) r.stdoutBytes = Buffer.from(stdoutBase64, 'base64');
  if (stderrBase64 !== undefined) r.stderrBytes = Buffer.from(stderrBase64, 'base64');
  r.stdout ??= r.stdoutBytes?.toString('utf8') ?? '';
  r.stderr ??= r.stderrBytes?.toString('utf8') ?? '';
  r.ok = r.exitCode === 0 && r.verdict?.cause === 'exited';
  return r;
}

/** Where the output of an exec comes from, piece by piece; after undefined there is `result`. */
interface Channel {
  next(): Promise<OutputChunk | undefined>;
  readonly result: Result | undefined;
  /** Bytes of stdout or terminal seen. */
  readonly offset: number;
  /** Still followed. */
  readonly open: boolean;
  close(): void;
  fail(why: Error): void;
  write?(data: Buffer): Promise<void>;
  closeStdin?(): Promise<void>;
  resize?(rows: number, cols: number): Promise<void>;
}

class Decoders {
  #by: Partial<Record<OutputChunk['stream'], TextDecoder>> = {};

  chunk(stream: OutputChunk['stream'], data: Buffer): OutputChunk {
    const d = (this.#by[stream] ??= new TextDecoder('utf-8'));
    return { stream, data, text: d.decode(data, { stream: true }) };
  }

  /* What comes behind it does not continue a character. */
  gap(stream: OutputChunk['stream'], gap: OutputGap): OutputChunk {
    const text = this.#by[stream]?.decode() ?? '';
    delete this.#by[stream];
    return { stream, data: Buffer.alloc(0), text, gap };
  }
}

/** Output by WebSocket. */
class SocketChannel implements Channel {
  result: Result | undefined;
  offset = 0;
  #queue: OutputChunk[] = [];
  #bytes = 0;
  #error: Error | undefined;
  #ended = false;
  #wake: (() => void) | undefined;
  #decoders = new Decoders();
  readonly started: Promise<{ id: string; startedAt?: string }>;
  #onStarted!: (v: { id: string; startedAt?: string }) => void;
  #onFailed!: (e: Error) => void;

  constructor(
    private readonly socket: Socket,
    private readonly tty: boolean,
  ) {
    this.started = new Promise((resolve, reject) => {
      this.#onStarted = resolve;
      this.#onFailed = reject;
    });
    this.started.catch(() => undefined);
    socket.listen({ message: (d) => this.#message(d), close: (_c, _r, e) => this.#closed(e) });
  }

  get open(): boolean {
    return !this.#ended;
  }

  async next(): Promise<OutputChunk | undefined> {
    for (;;) {
      const c = this.#queue.shift();
      if (c) {
        this.#bytes -= c.data.length;
        if (this.#bytes < HIGH_WATER / 2) this.socket.resume();
        return c;
      }
      if (this.#error) throw this.#error;
      if (this.#ended) return undefined;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  async write(data: Buffer): Promise<void> {
    for (let at = 0; at < data.length; at += STDIN_PIECE)
      await this.socket.send(Buffer.concat([Buffer.from([3]), data.subarray(at, at + STDIN_PIECE)]));
  }

  closeStdin(): Promise<void> {
    return this.socket.send(JSON.stringify({ type: 'stdin_close' }));
  }

  resize(rows: number, cols: number): Promise<void> {
    const b = Buffer.alloc(5);
    b[0] = 4;
    b.writeUInt16BE(rows, 1);
    b.writeUInt16BE(cols, 3);
    return this.socket.send(b);
  }

  close(): void {
    this.socket.close();
    this.#stop();
  }

  fail(why: Error): void {
    if (this.#ended) return;
    this.#error = why;
    this.socket.destroy();
    this.#stop();
  }

  #stop(): void {
    this.#ended = true;
    if (!this.result && !this.#error) this.#error = detached();
    if (this.#error) this.#onFailed(this.#error);
    this.#wake?.();
  }

  #message(d: string | Buffer): void {
    if (this.#ended) return;
    if (typeof d === 'string') return this.#control(d);
    const kind = d[0];
    if (kind !== 1 && kind !== 2) return; // a kind of a later version
    const stream = kind === 2 ? 'stderr' : this.tty ? 'tty' : 'stdout';
    const data = d.subarray(1);
    if (kind === 1) this.offset += data.length;
    this.#queue.push(this.#decoders.chunk(stream, data));
    this.#bytes += data.length;
    if (this.#bytes > HIGH_WATER) this.socket.pause();
    this.#wake?.();
  }

  #control(s: string): void {
    let m: {
      type?: string;
      error?: unknown;
      id?: string;
      started_at?: string;
      stream?: OutputChunk['stream'];
      offset?: number;
      lost?: number;
    };
    try {
      m = JSON.parse(s) as typeof m;
    } catch (cause) {
      return this.fail(new ProtocolError('a text frame that is no JSON', { code: 'protocol', cause }));
    }
    if (m.type === 'started') this.#onStarted({ id: String(m.id), startedAt: m.started_at });
    else if (m.type === 'result') {
      const { type: _, ...rest } = m;
      this.result = readResult(rest);
      this.#onStarted({ id: this.result.id });
      this.#stop();
    } else if (m.type === 'gap') {
      const gap = { offset: Number(m.offset), lost: Number(m.lost) };
      if (m.stream !== 'stderr') this.offset = gap.offset;
      this.#queue.push(this.#decoders.gap(m.stream ?? 'stdout', gap));
      this.#wake?.();
    } else if (m.type === 'error') {
      this.#error = errorFromWire(m.error);
      this.#stop();
    }
  }

  #closed(error?: Error): void {
    if (this.#ended) return;
    this.#error = new ConnectionError('the connection broke; the command goes on, attach to it again', {
      code: 'connection',
      cause: error,
    });
    this.#stop();
  }
}

function detached(): ClocheError {
  return new ClocheError('detached: the output is no longer followed', { code: 'detached' });
}

function noStdin(): ClocheError {
  return new ClocheError('this exec has no stdin: start it with { stdin: true }', { code: 'invalid' });
}

/** Output by Server-Sent Events. */
class EventChannel implements Channel {
  result: Result | undefined;
  offset = 0;
  #events: AsyncGenerator<{ event: string; data: string }>;
  #decoders = new Decoders();
  #error: Error | undefined;

  constructor(private readonly body: Readable) {
    this.#events = readEvents(body as AsyncIterable<Uint8Array>);
  }

  get open(): boolean {
    return !this.#error && !this.result;
  }

  async started(): Promise<{ id: string; startedAt?: string }> {
    const e = await this.#read();
    const d = JSON.parse(e.data) as { id: string; started_at?: string };
    if (e.event !== 'started') throw new ProtocolError(`"${e.event}" came before "started"`, { code: 'protocol' });
    return { id: d.id, startedAt: d.started_at };
  }

  async #read(): Promise<{ event: string; data: string }> {
    let r;
    try {
      r = await this.#events.next();
    } catch (cause) {
      throw this.#error ?? new ConnectionError('the stream broke', { code: 'connection', cause });
    }
    if (this.#error) throw this.#error;
    if (r.done) throw new ConnectionError('the stream ended before the command did', { code: 'connection' });
    if (r.value.event === 'error') {
      const d = JSON.parse(r.value.data) as { error?: unknown };
      throw errorFromWire(d.error ?? d);
    }
    return r.value;
  }

  async next(): Promise<OutputChunk | undefined> {
    while (!this.result) {
      const e = await this.#read();
      if (e.event === 'result') {
        this.result = readResult(JSON.parse(e.data));
        this.close();
      } else if (e.event === 'stdout' || e.event === 'stderr') {
        const d = JSON.parse(e.data) as { data?: string; base64?: string };
        const data = d.base64 !== undefined ? Buffer.from(d.base64, 'base64') : Buffer.from(d.data ?? '');
        if (e.event === 'stdout') this.offset += data.length;
        return this.#decoders.chunk(e.event, data);
      }
    }
    return undefined;
  }

  close(): void {
    if (!this.result) this.#error ??= detached();
    this.body.destroy();
  }

  fail(why: Error): void {
    this.#error ??= why;
    this.body.destroy();
  }
}

/** What nobody reads, kept as the server keeps it: head and tail, up to a limit. */
export class Collector {
  #head: Buffer[] = [];
  #tail: Buffer[] = [];
  #headSize = 0;
  #tailSize = 0;
  /** Bytes between head and tail that are not kept. */
  dropped = 0;

  constructor(private readonly limit: number) {}

  add(data: Buffer): void {
    const room = Math.ceil(this.limit / 2) - this.#headSize;
    if (room > 0) {
      const part = data.subarray(0, room);
      this.#head.push(part);
      this.#headSize += part.length;
      data = data.subarray(part.length);
    }
    if (data.length === 0) return;
    this.#tail.push(data);
    this.#tailSize += data.length;
    const most = Math.floor(this.limit / 2);
    while (this.#tailSize > most) {
      const first = this.#tail.shift()!;
      const over = Math.min(this.#tailSize - most, first.length);
      this.#tailSize -= over;
      this.dropped += over;
      if (over < first.length) this.#tail.unshift(first.subarray(over));
    }
  }

  bytes(): Buffer {
    return Buffer.concat([...this.#head, ...this.#tail]);
  }
}

/* The server's default; a text like "4M" is its business, so here it is the default, too. */
const COLLECT = 1024 * 1024;

/** An exec that was started: its output, its stdin, its end. */
export class Exec implements AsyncIterable<OutputChunk> {
  readonly id: string;
  readonly tty: boolean;
  readonly startedAt: string | undefined;
  /** Its stdin, or a terminal's keyboard. Writing waits until the server takes more; `end()` closes it. */
  readonly stdin: Writable;
  readonly #path: string;
  #channel: Channel | undefined;
  #iterated = false;
  #result: Result | undefined;
  #over: Promise<Result>;
  #resolve!: (r: Result) => void;
  #reject!: (e: unknown) => void;
  #offAbort: () => void = () => undefined;
  readonly #collect: number | undefined;

  /** @internal Made by a Sandbox. */
  constructor(
    private readonly transport: Transport,
    execsPath: string,
    init: {
      id: string;
      startedAt?: string;
      tty: boolean;
      channel?: Channel;
      /** Its abort ends the command. */
      kill?: AbortSignal;
      /** False: known to have none. */
      stdin?: boolean;
      /** Only this channel carries its output: what is not read here is read nowhere. At most so many bytes are kept. */
      collect?: number;
    },
  ) {
    this.id = init.id;
    this.tty = init.tty;
    this.startedAt = init.startedAt;
    this.#path = `${execsPath}/${encodeURIComponent(init.id)}`;
    this.#channel = init.channel;
    this.#collect = init.collect;
    this.#over = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#over.catch(() => undefined);
    this.stdin = new Writable({
      write: (piece: Buffer, _enc, done) =>
        void (init.stdin === false ? Promise.reject(noStdin()) : this.#write(piece)).then(() => done(), done),
      final: (done) => void (init.stdin === false ? Promise.resolve() : this.#closeStdin()).then(() => done(), done),
      decodeStrings: true,
    });
    this.stdin.on('error', () => undefined); // the writer's callback has it; without one it is lost output, not a crash
    if (init.kill) this.#killOn(init.kill);
  }

  /** How it ended, once that is known. */
  get result(): Result | undefined {
    return this.#result;
  }

  /** Bytes of stdout (or of the terminal) that have come: `attach` goes on from here. */
  get offset(): number {
    return this.#channel?.offset ?? 0;
  }

  /**
   * Its output, as it comes; the end of the loop is the end of the command. Leaving early detaches and the command goes on;
   * what was on its way is lost, unless it runs in the background or on a terminal, whose output is kept.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<OutputChunk, void, void> {
    if (this.#iterated) throw new ClocheError('the output of an exec can be read once', { code: 'invalid' });
    this.#iterated = true;
    const channel = (this.#channel ??= await openAttach(this.transport, this.#path, this.tty, 0));
    let done = false;
    try {
      for (;;) {
        const c = await channel.next();
        if (!c) break;
        yield c;
      }
      done = true;
      this.#finish(channel.result!);
    } catch (e) {
      done = true;
      this.#reject(e);
      throw e;
    } finally {
      if (!done) {
        channel.close();
        this.#reject(detached());
      }
    }
  }

  /**
   * Its end. When nobody reads the output it is in the result, head and tail of it as far as the output limit goes; whoever
   * reads it gets a result without.
   */
  async wait(options: CallOptions = {}): Promise<Result> {
    if (this.#result) return this.#result;
    if (this.stdin.writableEnded && !this.stdin.writableFinished && !this.stdin.destroyed)
      await new Promise((resolve) => this.stdin.once('close', resolve));
    if (this.#channel && this.#iterated) {
      try {
        return await until(this.#over, options.signal);
      } catch (e) {
        if (!(e instanceof ClocheError && e.code === 'detached')) throw e;
      }
    } else if (this.#collect !== undefined) return until(this.#drain(this.#collect), options.signal);
    else this.detach();
    return this.#finish(await waitFor(this.transport, this.#path, options));
  }

  /* Reads what nobody else does, to the end. */
  async #drain(limit: number): Promise<Result> {
    const out = new Collector(limit);
    const err = new Collector(limit);
    for await (const c of this) (c.stream === 'stderr' ? err : out).add(c.data);
    const r = this.#result!;
    const stdoutBytes = out.bytes();
    const stderrBytes = err.bytes();
    return Object.assign(r, {
      stdout: stdoutBytes.toString('utf8'),
      stderr: stderrBytes.toString('utf8'),
      stdoutBytes,
      stderrBytes,
      truncated: {
        ...r.truncated,
        stdout: out.dropped > 0,
        stderr: err.dropped > 0,
        stdoutDropped: out.dropped,
        stderrDropped: err.dropped,
      },
    });
  }

  /** What the server knows now. */
  async status(options: CallOptions = {}): Promise<Result | ExecInfo> {
    const wire = await this.transport.json<{ state: string }>({
      method: 'GET',
      path: this.#path,
      signal: options.signal,
      timeout: options.requestTimeout,
    });
    return wire.state === 'ended' ? this.#finish(readResult(wire)) : fromWire<ExecInfo>(wire);
  }

  /** Ends its whole process tree (KILL) and waits for that. */
  async kill(options: CallOptions = {}): Promise<Result> {
    if (this.#result) return this.#result;
    const wire = await this.transport.json({
      method: 'DELETE',
      path: this.#path,
      signal: options.signal,
      timeout: options.requestTimeout,
    });
    const result = readResult(wire);
    if (!this.#iterated) this.detach();
    return this.#finish(result);
  }

  /** Sends a signal (`"TERM"`, 15): to the whole tree, unless `scope` says less. */
  async signal(
    signal: Signal,
    options: CallOptions & { scope?: 'process' | 'group' | 'tree' } = {},
  ): Promise<void> {
    const name = typeof signal === 'string' ? signal.replace(/^SIG/, '') : signal;
    await this.transport.json({
      method: 'POST',
      path: `${this.#path}/signal`,
      json: toWire({ signal: name, scope: options.scope }),
      signal: options.signal,
      timeout: options.requestTimeout,
    });
  }

  /** The terminal's size. */
  async resize(rows: number, cols: number, options: CallOptions = {}): Promise<void> {
    if (this.#channel?.resize && !this.#result) {
      try {
        return await this.#channel.resize(rows, cols);
      } catch {
        // The socket has gone; the command may not.
      }
    }
    await this.transport.json({
      method: 'POST',
      path: `${this.#path}/resize`,
      json: { rows, cols },
      signal: options.signal,
      timeout: options.requestTimeout,
      repeatable: true,
    });
  }

  /**
   * Raw output from the spool, from any place: kept for a while after the end. `gaps` on the buffer says what is missing in it, since
   * the server had not kept it.
   */
  async output(
    options: CallOptions & { stream?: 'stdout' | 'stderr' | 'tty'; offset?: number; limit?: number } = {},
  ): Promise<Buffer & { gaps: OutputGap[] }> {
    const gaps: OutputGap[] = [];
    const stream = await this.outputStream(options);
    stream.on('gap', (g: OutputGap) => gaps.push(g));
    return Object.assign(await collect(stream, 1024 ** 3), { gaps });
  }

  /**
   * The same as a stream; `follow` continues until the command ends. An event `gap` says what is missing before the bytes that
   * come next.
   */
  async outputStream(
    options: CallOptions & {
      stream?: 'stdout' | 'stderr' | 'tty';
      offset?: number;
      limit?: number;
      follow?: boolean;
    } = {},
  ): Promise<Readable> {
    const { stream = this.tty ? 'tty' : 'stdout', offset = 0, limit, follow } = options;
    const end = limit === undefined ? Infinity : offset + limit;
    const ask = (at: number) =>
      this.transport.stream({
        method: 'GET',
        path: `${this.#path}/output`,
        query: { stream, offset: at, limit: limit === undefined ? undefined : Math.max(0, end - at), follow },
        headers: { accept: 'application/octet-stream' },
        signal: options.signal,
        timeout: options.requestTimeout,
      });
    let piece = await ask(offset);
    const next = async (at: number): Promise<Piece> => {
      piece = await ask(at);
      if (readable.destroyed) piece.body.destroy();
      return piece;
    };
    const pieces = joinPieces(piece, offset, end, Boolean(follow), next, (gap) => readable.emit('gap', gap));
    const readable = Readable.from(pieces, { objectMode: false });
    // A generator ends only after the read that is pending, and one that has not started does not close its first answer.
    const destroy = readable._destroy;
    readable._destroy = (error, done) => {
      piece.body.destroy();
      destroy.call(readable, error, done);
    };
    return readable;
  }

  /** Stops following it. The command goes on, and `attach` finds it again. */
  detach(): void {
    this.#channel?.close();
  }

  #finish(result: Result): Result {
    this.#offAbort();
    this.#result ??= result;
    this.#resolve(this.#result);
    return this.#result;
  }

  #killOn(signal: AbortSignal): void {
    const fire = (): void => {
      this.#channel?.fail(abortReason(signal) as Error);
      this.#reject(abortReason(signal));
      this.transport.json({ method: 'DELETE', path: this.#path }).catch(() => undefined);
    };
    if (signal.aborted) return fire();
    signal.addEventListener('abort', fire, { once: true });
    this.#offAbort = () => signal.removeEventListener('abort', fire);
  }

  async #write(piece: Buffer): Promise<void> {
    if (this.#channel?.write && this.#channel.open) return this.#channel.write(piece);
    await this.transport.json({ method: 'POST', path: `${this.#path}/stdin`, body: piece });
  }

  async #closeStdin(): Promise<void> {
    if (this.#result) return;
    if (this.#channel?.closeStdin && this.#channel.open) return this.#channel.closeStdin();
    await this.transport.json({
      method: 'POST',
      path: `${this.#path}/stdin`,
      query: { close: true },
      body: '',
    });
  }
}

/* Where the language has it: `await using exec = …` ends a command that still runs. */
export interface Exec {
  [Symbol.asyncDispose](): Promise<void>;
}
if (typeof Symbol.asyncDispose === 'symbol')
  Object.defineProperty(Exec.prototype, Symbol.asyncDispose, {
    async value(this: Exec): Promise<void> {
      try {
        if (!this.result) await this.kill();
      } catch (e) {
        if (!(e instanceof NotFoundError)) throw e;
      }
    },
  });

function until<T>(p: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return p;
  return new Promise((resolve, reject) => {
    const fire = (): void => reject(abortReason(signal));
    if (signal.aborted) return fire();
    signal.addEventListener('abort', fire, { once: true });
    p.then(resolve, reject).finally(() => signal.removeEventListener('abort', fire));
  });
}

interface Piece {
  headers: Record<string, string>;
  body: Readable;
}

/* An answer ends where there is a gap: the next one begins behind it. */
async function* joinPieces(
  piece: Piece,
  at: number,
  end: number,
  follow: boolean,
  ask: (at: number) => Promise<Piece>,
  onGap: (gap: OutputGap) => void,
): AsyncGenerator<Buffer, void, void> {
  for (;;) {
    const begin = at;
    const lost = Number(piece.headers['x-cloche-lost'] ?? 0);
    at = Number(piece.headers['x-cloche-offset'] ?? at);
    if (lost > 0) onGap({ offset: at, lost });
    for await (const data of piece.body as AsyncIterable<Buffer>) {
      at += data.length;
      yield data;
    }
    const total = Number(piece.headers['x-cloche-total'] ?? 0);
    if (at >= end || (!follow && (at >= total || at === begin))) return;
    if (follow && at >= total && piece.headers['x-cloche-state'] !== 'running') return;
    try {
      piece = await ask(at);
    } catch (e) {
      // Whether it has ended is only known by asking again; removed meanwhile, it has. If output is known to be missing, that is an error.
      if (follow && at >= total && e instanceof NotFoundError) return;
      throw e;
    }
  }
}

/** Asks in rounds, since a connection that says nothing for hours is cut by somebody. */
export async function waitFor(transport: Transport, path: string, options: CallOptions): Promise<Result> {
  const end = options.requestTimeout ? Date.now() + options.requestTimeout : Infinity;
  for (;;) {
    const left = Math.min(WAIT_SECONDS, (end - Date.now()) / 1000);
    const wire = await transport.json<{ state: string }>({
      method: 'GET',
      path: `${path}/wait`,
      query: { timeout: Math.max(0, Math.ceil(left)) },
      signal: options.signal,
      timeout: left * 1000 + (transport.options.timeout || 30_000),
    });
    if (wire.state === 'ended') return readResult(wire);
    if (Date.now() >= end)
      throw new ClocheError(`it still runs after ${options.requestTimeout} ms`, { code: 'timeout' });
  }
}

async function openAttach(t: Transport, path: string, tty: boolean, offset: number, signal?: AbortSignal) {
  const socket = await t.upgrade({ path: `${path}/attach`, query: { offset: offset || undefined }, signal });
  return new SocketChannel(socket, tty);
}

/* The word that it runs, within the time that any call has. */
async function answerOf(channel: SocketChannel, t: Transport, o: StartOptions, sent: Promise<void>) {
  const guard = new Guard(o.signal, o.requestTimeout ?? t.options.timeout);
  guard.onFire((why) => channel.fail(why));
  try {
    guard.check();
    await sent;
    return await channel.started;
  } catch (e) {
    throw guard.explain(e);
  } finally {
    guard.done();
  }
}

/** Starts one and follows it. */
export async function startExec(t: Transport, execsPath: string, cmd: Command, o: StartOptions): Promise<Exec> {
  const kind = o.transport ?? (t.canUpgrade ? 'websocket' : 'sse');
  const tty = Boolean(o.tty);
  const stdin = tty || o.stdin === true;
  const collect = tty ? undefined : typeof o.outputLimit === 'number' ? o.outputLimit : COLLECT;
  if (kind === 'sse') {
    const answer = await t.stream({
      method: 'POST',
      path: execsPath,
      headers: { accept: 'text/event-stream' },
      json: execBody(cmd, o),
      timeout: o.requestTimeout,
      signal: o.signal,
    });
    const channel = new EventChannel(answer.body);
    return new Exec(t, execsPath, { ...(await channel.started()), tty, channel, kill: o.signal, stdin, collect });
  }
  const socket = await t.upgrade({ path: `${execsPath}/attach`, signal: o.signal, timeout: o.requestTimeout });
  const channel = new SocketChannel(socket, tty);
  const started = await answerOf(channel, t, o, socket.send(JSON.stringify(execBody(cmd, o))));
  return new Exec(t, execsPath, { ...started, tty, channel, kill: o.signal, stdin, collect });
}

/** Starts one that needs no listener. */
export async function startBackground(
  t: Transport,
  execsPath: string,
  cmd: Command,
  o: BackgroundOptions & { binary?: boolean },
  idempotencyKey: string,
): Promise<Exec> {
  const wire = await t.json<{ id: string; started_at?: string }>({
    method: 'POST',
    path: execsPath,
    headers: { 'idempotency-key': idempotencyKey },
    json: execBody(cmd, { ...o, background: true }),
    repeatable: true,
    timeout: o.requestTimeout,
  });
  return new Exec(t, execsPath, { id: wire.id, startedAt: wire.started_at, tty: Boolean(o.tty) });
}

/** Follows one that runs (or has ended) already. */
export async function attachExec(
  t: Transport,
  execsPath: string,
  id: string,
  o: CallOptions & { offset?: number; tty?: boolean },
): Promise<Exec> {
  const path = `${execsPath}/${encodeURIComponent(id)}`;
  let tty = o.tty;
  if (tty === undefined)
    tty = Boolean((await t.json<{ tty?: boolean }>({ method: 'GET', path, signal: o.signal })).tty);
  const channel = await openAttach(t, path, tty, o.offset ?? 0, o.signal);
  return new Exec(t, execsPath, { id, tty, channel });
}

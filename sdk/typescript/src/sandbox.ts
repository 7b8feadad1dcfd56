import { randomUUID } from 'node:crypto';
import { Contexts, type Execution, type RunCodeOptions } from './contexts.js';
import { abortReason, ClocheError, NotFoundError, UnsupportedError } from './errors.js';
import { diffSource } from './diff.js';
import { attachExec, execBody, inputBody, readResult, startBackground, startExec, waitFor, type Exec } from './exec.js';
import { Files } from './files.js';
import { Ports } from './ports.js';
import { once, type Call, type Transport } from './http.js';
import { readEvents } from './sse.js';
import type {
  BackgroundOptions,
  CallOptions,
  Checkpoint,
  CheckpointOptions,
  Command,
  CopiedNetwork,
  Diff,
  DiffOptions,
  Duration,
  ExecInfo,
  ExecOptions,
  ForkOptions,
  Memory,
  Network,
  NetworkRefusal,
  NetworkState,
  Promoted,
  Result,
  SandboxEvent,
  SandboxInfo,
  StartOptions,
  Stats,
  UpdateOptions,
} from './types.js';
import { fromWire, listOf, toWire } from './wire.js';

/** A sandbox: an isolated computer. Its fields are what the server last said; `refresh()` asks again. */
export interface Sandbox extends SandboxInfo {
  /** Where the language has it: `await using sandbox = …` deletes it at the end of the block. */
  [Symbol.asyncDispose](): Promise<void>;
}

// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export class Sandbox {
  readonly files: Files;
  readonly ports: Ports;
  /** Interpreters that keep their variables. */
  readonly contexts: Contexts;
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal Made by `client.sandboxes`. */
  constructor(transport: Transport, wire: unknown) {
    this.#transport = transport;
    this.#take(wire);
    this.#path = `/v1/sandboxes/${encodeURIComponent(this.id)}`;
    this.files = new Files(transport, this.#path);
    this.ports = new Ports(transport, this.#path);
    this.contexts = new Contexts(transport, this.#path);
    Object.defineProperty(this, 'contexts', { enumerable: false });
    Object.defineProperty(this, 'files', { enumerable: false });
    Object.defineProperty(this, 'ports', { enumerable: false });
  }

  /* What the server says of it. A field never hides a method: of later servers, too. */
  #take(wire: unknown): this {
    const { checkpoint, ...info } = fromWire<SandboxInfo & { checkpoint?: string | null }>(wire);
    if (checkpoint !== undefined) info.fromCheckpoint = checkpoint;
    for (const [k, v] of Object.entries(info)) if (!(k in Sandbox.prototype)) Object.assign(this, { [k]: v });
    return this;
  }

  #call(method: string, sub: string, o: CallOptions, json?: unknown) {
    return { method, path: this.#path + sub, json, signal: o.signal, timeout: o.requestTimeout };
  }

  async #change(method: string, sub: string, o: CallOptions, json?: unknown): Promise<this> {
    // Each of these says what shall be, so saying it twice is fine.
    const wire = await this.#transport.json({ ...this.#call(method, sub, o, json), repeatable: true });
    return this.#take(wire);
  }

  /** Asks the server how it is now. */
  refresh(options: CallOptions = {}): Promise<this> {
    return this.#change('GET', '', options);
  }

  update(options: UpdateOptions): Promise<this> {
    const { timeout, idle, metadata, name, cpus, memory, disk, pids } = options;
    return this.#change('PATCH', '', options, toWire({ timeout, idle, metadata, name, cpus, memory, disk, pids }));
  }

  /** Lets it live for so long from now. */
  extend(timeout: Duration, options: CallOptions = {}): Promise<this> {
    return this.#change('POST', '/extend', options, { timeout });
  }

  /** Starts one that is stopped or lost again, on its disk (`storage: 'disk'`). Twice is fine. */
  startAgain(options: CallOptions = {}): Promise<this> {
    return this.#change('POST', '/start', options);
  }

  /** Ends what runs in it and keeps its disk (`storage: 'disk'`). Twice is fine. */
  stop(options: CallOptions = {}): Promise<this> {
    return this.#change('POST', '/stop', options);
  }

  /** Freezes everything in it. Twice is fine. */
  pause(options: CallOptions = {}): Promise<this> {
    return this.#change('POST', '/pause', options);
  }

  resume(options: CallOptions = {}): Promise<this> {
    return this.#change('POST', '/resume', options);
  }

  /** Ends it with all that runs and lies in it. */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ ...this.#call('DELETE', '', options), goneIsDone: true });
  }

  /**
   * Runs a command and gives back how it ended, whatever the exit code. Never repeated by itself. Aborting the signal ends
   * the command, too.
   */
  async exec(cmd: Command, options: ExecOptions = {}): Promise<Result> {
    if (options.signal) return this.#execUntil(cmd, options, options.signal);
    const body = inputBody(cmd, options);
    const wire = await this.#transport.json({
      ...this.#call('POST', '/execs', options, body ? undefined : execBody(cmd, options)),
      body,
      // How long a command may take is the server's clock to say.
      timeout: options.requestTimeout ?? 0,
    });
    return readResult(wire);
  }

  /* To end a command one must know its id before it has ended: it is started in the background and waited for. */
  async #execUntil(cmd: Command, options: ExecOptions, signal: AbortSignal): Promise<Result> {
    if (signal.aborted) throw abortReason(signal);
    const { signal: _, ...rest } = options;
    const exec = await startBackground(this.#transport, `${this.#path}/execs`, cmd, rest, randomUUID());
    try {
      return await waitFor(this.#transport, `${this.#path}/execs/${exec.id}`, options);
    } catch (e) {
      await exec.kill().catch(() => undefined);
      throw e;
    }
  }

  /** Starts a command and follows it: iterate over its output, write to its `.stdin`, `wait()` for its end. */
  start(cmd: Command, options: StartOptions = {}): Promise<Exec> {
    return startExec(this.#transport, `${this.#path}/execs`, cmd, options);
  }

  /** Starts a command that needs nobody to listen; `attach` finds it again. */
  background(cmd: Command, options: BackgroundOptions = {}): Promise<Exec> {
    const key = options.idempotencyKey ?? randomUUID();
    return startBackground(this.#transport, `${this.#path}/execs`, cmd, options, key);
  }

  /** A terminal. Default: a login shell of 24 rows and 80 columns. */
  pty(options: StartOptions & { cmd?: Command; rows?: number; cols?: number } = {}): Promise<Exec> {
    const { cmd = ['/bin/sh', '-l'], rows = 24, cols = 80, ...rest } = options;
    return this.start(cmd, { ...rest, tty: { rows, cols } });
  }

  /** Follows an exec that was started earlier, from any byte of its output on. */
  attach(execId: string, options: CallOptions & { offset?: number; tty?: boolean } = {}): Promise<Exec> {
    return attachExec(this.#transport, `${this.#path}/execs`, execId, options);
  }

  /** The newest execs, running and ended. */
  async execs(options: CallOptions = {}): Promise<ExecInfo[]> {
    const wire = await this.#transport.json<{ execs: unknown[] }>(this.#call('GET', '/execs', options));
    return fromWire(wire.execs);
  }

  async stats(options: CallOptions = {}): Promise<Stats> {
    return fromWire(await this.#transport.json(this.#call('GET', '/stats', options)));
  }

  /** What it may reach, and what it used. */
  async getNetwork(options: CallOptions = {}): Promise<NetworkState> {
    return fromWire(await this.#transport.json(this.#call('GET', '/network', options)));
  }

  /** Changes what it may reach, while it runs: in force when this resolves. Connections no longer allowed end. */
  async setNetwork(network: Network, options: CallOptions = {}): Promise<NetworkState> {
    const body = typeof network === 'string' ? { mode: network } : network;
    const state = fromWire<NetworkState>(await this.#transport.json(this.#call('PUT', '/network', options, toWire(body))));
    this.network = state.policy;
    return state;
  }

  /** What it was refused, the newest first, each with what would allow it. */
  async why(options: CallOptions = {}): Promise<NetworkRefusal[]> {
    const call = { ...this.#call('GET', '/network', options), query: { why: true } };
    return fromWire((await this.#transport.json<{ refusals: unknown[] }>(call)).refusals);
  }

  /** What happens to it, as it happens; `lastEventId` goes on where an earlier loop ended. */
  events(options: CallOptions & { lastEventId?: string } = {}): AsyncGenerator<SandboxEvent, void, void> {
    return followEvents(this.#transport, `${this.#path}/events`, options);
  }

  /* A server of an earlier version does not know the path; that is no missing sandbox, so it is asked what it can do. */
  async #able<T>(feature: string, call: Call): Promise<T> {
    try {
      return await this.#transport.json<T>(call);
    } catch (e) {
      if (!(e instanceof ClocheError) || (e.status !== 404 && e.status !== 405)) throw e;
      const info = await this.#transport.json<{ features?: Record<string, unknown> }>({ method: 'GET', path: '/v1/info' });
      if (info.features?.[feature] === true) throw e;
      throw new UnsupportedError(`this server has no ${feature}`, {
        code: 'unsupported',
        status: 501,
        cause: e,
        remedy: 'GET /v1/info lists what it has',
        requestId: e.requestId,
      });
    }
  }

  /** Keeps its state, under a name if one is given. It runs on. */
  async checkpoint(name?: string, options: CheckpointOptions = {}): Promise<Checkpoint> {
    const { label, metadata, memory, network } = options;
    const call = this.#call('POST', '/checkpoints', options, toWire({ name, label, metadata, memory, network }));
    // A lot of memory takes its time.
    return fromWire(await this.#able('checkpoints', { ...once(call), timeout: options.requestTimeout ?? 0 }));
  }

  /** Its checkpoints, newest first. */
  async checkpoints(options: CallOptions = {}): Promise<Checkpoint[]> {
    const out: Checkpoint[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.#able<{ checkpoints: unknown[]; next?: string | null }>('checkpoints', {
        ...this.#call('GET', '/checkpoints', options),
        query: { cursor },
      });
      out.push(...fromWire<Checkpoint[]>(listOf(page.checkpoints, 'checkpoints')));
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
    return out;
  }

  /** Back to a checkpoint (its id, or the name of one of its own) in place, or with `as` a new sandbox of it. */
  async restore(checkpoint: string, options: CallOptions & { as?: string } = {}): Promise<Sandbox> {
    const call = this.#call('POST', '/restore', options, toWire({ checkpoint, as: options.as }));
    // Going back twice is going back.
    const safe = options.as === undefined ? { ...call, repeatable: true } : once(call);
    const wire = await this.#able<{ id: string }>('checkpoints', safe);
    if (options.as !== undefined) return new Sandbox(this.#transport, wire);
    return this.#take(wire);
  }

  /** Copies of it as it stands; it runs on. */
  async fork(count?: number, options: ForkOptions = {}): Promise<Sandbox[]> {
    const { names, memory, network, secrets } = options;
    const body = toWire({ count: count ?? names?.length ?? 1, names, memory, network, secrets });
    const call = once(this.#call('POST', '/fork', options, body));
    const wire = await this.#able<{ sandboxes: unknown[] }>('checkpoints', call);
    return wire.sandboxes.map((s) => new Sandbox(this.#transport, s));
  }

  /** Which files differ from its image, or another state. */
  async diff(options: DiffOptions = {}): Promise<Diff> {
    const query = { from: diffSource(options.from), text: options.text || undefined };
    return fromWire(await this.#able('checkpoints', { ...this.#call('GET', '/diff', options), query }));
  }

  /**
   * Brings what a fork of it has changed back into this one. A ConflictError when both have changed the same path
   * differently; `force` takes the fork's.
   */
  async promote(fork: string | { id: string }, options: CallOptions & { force?: boolean } = {}): Promise<Promoted> {
    const body = { from: typeof fork === 'string' ? fork : fork.id, force: options.force };
    return fromWire(await this.#able('checkpoints', this.#call('POST', '/promote', options, toWire(body))));
  }

  /** Keeps files and processes on disk and frees everything else; any call wakes it. */
  async hibernate(options: CallOptions & { memory?: Memory; network?: CopiedNetwork } = {}): Promise<this> {
    const { memory, network } = options;
    const body = memory === undefined && network === undefined ? undefined : toWire({ memory, network });
    const call = this.#call('POST', '/hibernate', options, body);
    const wire = await this.#able('checkpoints', { ...call, repeatable: true, timeout: options.requestTimeout ?? 0 });
    return this.#take(wire);
  }

  /** The same as `resume`: for one that hibernates. */
  wake(options: CallOptions = {}): Promise<this> {
    return this.resume(options);
  }

  /**
   * Runs code in a context, which keeps its variables: by default the one that its language has in each sandbox. Code that
   * fails is no exception: see `error` and `verdict`. Callbacks get output and results as they come.
   */
  runCode(code: string, options: RunCodeOptions = {}): Promise<Execution> {
    const { language = 'python', context = language, ...rest } = options;
    return (typeof context === 'string' ? this.contexts.named(context) : context).execute(code, rest);
  }
}

if (typeof Symbol.asyncDispose === 'symbol')
  Object.defineProperty(Sandbox.prototype, Symbol.asyncDispose, {
    async value(this: Sandbox): Promise<void> {
      try {
        await this.delete();
      } catch (e) {
        if (!(e instanceof NotFoundError)) throw e;
      }
    },
  });

/** Server-Sent Events as objects; leaving the loop closes the connection. */
export async function* followEvents(
  transport: Transport,
  path: string,
  options: CallOptions & { lastEventId?: string },
): AsyncGenerator<SandboxEvent, void, void> {
  const headers: Record<string, string> = { accept: 'text/event-stream' };
  if (options.lastEventId !== undefined) headers['last-event-id'] = options.lastEventId;
  const answer = await transport.stream({
    method: 'GET',
    path,
    headers,
    signal: options.signal,
    timeout: options.requestTimeout,
  });
  try {
    for await (const e of readEvents(answer.body as AsyncIterable<Uint8Array>))
      yield { id: e.id, type: e.event, data: fromWire(JSON.parse(e.data)) };
  } finally {
    answer.body.destroy();
  }
}

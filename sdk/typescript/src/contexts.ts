/*
 * Contexts of the code interpreter: each keeps variables, imports and the work folder between executions.
 */
import { ConnectionError, InvalidError } from './errors.js';
import { get, type Call, type Transport } from './http.js';
import { readEvents } from './sse.js';
import type { CallOptions, CreateOptions, Duration, Size } from './types.js';
import { fromWire, listOf, parseObject, toWire } from './wire.js';

/* One result has up to 10 MiB before its bytes are written as base64 or escapes. */
const MAX_EVENT = 64 * 1024 * 1024;

// eslint-disable-next-line @typescript-eslint/ban-types
export type Language = 'python' | 'javascript' | 'typescript' | 'shell' | 'js' | 'ts' | 'bash' | 'sh' | 'r' | (string & {});

export interface ContextOptions extends CallOptions {
  /** Default: python. */
  language?: Language;
  cwd?: string;
  env?: Record<string, string | null>;
  /** What code in a Python context cannot use by name: a guard-rail, since the sandbox is the wall. */
  restrict?: { builtins?: readonly string[]; imports?: readonly string[] };
  /** Text of an execution. Default: 4M. */
  outputLimit?: Size;
  /** One result, in all its formats. Default: 10M. */
  resultLimit?: Size;
}

export interface ExecuteOptions extends CallOptions {
  /** After it the code is interrupted; the variables stay. */
  timeout?: Duration;
  /** For this execution; null removes a variable. */
  env?: Record<string, string | null>;
}

export interface RunCodeOptions extends ExecuteOptions {
  /** Default: python. */
  language?: Language;
  /** Instead of the context that each language has in a sandbox. */
  context?: string | Context;
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
  onResult?: (result: CodeResult) => void;
  onError?: (error: CodeError) => void;
}

export interface CodeError {
  name: string;
  value: string;
  traceback: string;
  /** Of a syntax error. */
  line?: number;
  column?: number;
}

/** A value that was shown. */
export class CodeResult {
  /** By format: text/plain, text/html, image/png (base64), application/json (the value itself), … */
  readonly mime: Record<string, unknown>;
  /** The value of the last expression; false: it was displayed. */
  readonly isMain: boolean;
  readonly metadata?: Record<string, unknown>;
  /** Of a table: its values by column. */
  readonly data?: Record<string, unknown[]>;
  /** Of a figure of matplotlib: what it shows, as numbers. Names are those of the wire. */
  readonly chart?: Record<string, unknown>;
  readonly displayId?: string;
  /** It replaces the one with this `displayId`. */
  readonly update?: boolean;
  /** Formats that were too large, or have only their beginning: what they would have had, in bytes. */
  readonly truncated?: Record<string, number>;

  /** @internal */
  constructor(wire: Record<string, unknown>) {
    this.mime = (wire.mime ?? {}) as Record<string, unknown>;
    this.isMain = wire.is_main === true;
    if (wire.metadata !== undefined) this.metadata = wire.metadata as Record<string, unknown>;
    if (wire.data !== undefined) this.data = wire.data as Record<string, unknown[]>;
    if (wire.chart !== undefined) this.chart = wire.chart as Record<string, unknown>;
    if (wire.display_id !== undefined) this.displayId = wire.display_id as string;
    if (wire.update !== undefined) this.update = wire.update as boolean;
    if (wire.truncated !== undefined) this.truncated = wire.truncated as Record<string, number>;
  }

  #format(name: string): string | undefined {
    const value = this.mime[name];
    return typeof value === 'string' ? value : undefined;
  }

  #bytes(name: string): Buffer | undefined {
    const value = this.#format(name);
    return value === undefined ? undefined : Buffer.from(value, 'base64');
  }

  get text(): string | undefined {
    return this.#format('text/plain');
  }

  get html(): string | undefined {
    return this.#format('text/html');
  }

  get markdown(): string | undefined {
    return this.#format('text/markdown');
  }

  get latex(): string | undefined {
    return this.#format('text/latex');
  }

  get svg(): string | undefined {
    return this.#format('image/svg+xml');
  }

  get json(): unknown {
    return this.mime['application/json'];
  }

  get png(): Buffer | undefined {
    return this.#bytes('image/png');
  }

  get jpeg(): Buffer | undefined {
    return this.#bytes('image/jpeg');
  }

  /** In a notebook: what runs nothing there. HTML of a sandbox could act as the notebook's user. */
  [Symbol.for('Jupyter.display')](): Record<string, unknown> {
    const shown = ['text/plain', 'image/png', 'image/jpeg', 'image/gif', 'application/json'];
    return Object.fromEntries(Object.entries(this.mime).filter(([k]) => shown.includes(k)));
  }
}

export interface CodeVerdict {
  /** ok, error, interrupted, timeout, restarted, deleted, protocol, or what ended the process: exited, signaled, oom, … */
  cause: string;
  detail: string;
  /** Whether the variables are still there. */
  state: 'kept' | 'lost';
  limit: number | null;
  peak: number | null;
  /** How many processes the memory limit killed while code ran that ended with an error; absent when none was. */
  oomKills?: number;
}

export interface Execution {
  context: string;
  results: CodeResult[];
  stdout: string;
  stderr: string;
  error: CodeError | null;
  executionCount: number | null;
  verdict: CodeVerdict;
  truncated: { outputDropped: number; resultsDropped: number };
  usage: { wallMs: number; cpuMs: number | null; memoryPeak: number | null };
  /** It ran to its end without an error. */
  ok: boolean;
  /** The value of the last expression as text, if it has one. */
  text: string | undefined;
}

export type CodeEvent =
  | { type: 'stdout' | 'stderr'; text: string }
  | { type: 'result'; result: CodeResult }
  | { type: 'error'; error: CodeError }
  /** The code asks to remove what it has shown so far; with `wait`, when something new comes. */
  | { type: 'clear'; wait: boolean }
  /** The last one. */
  | { type: 'end'; execution: Execution };

export interface ContextInfo {
  id: string;
  language: string;
  cwd: string | null;
  /** It is the one that its language has in each sandbox, made when it is used first. */
  default: boolean;
  state: 'idle' | 'busy' | 'starting' | 'stopped';
  outputLimit: number;
  resultLimit: number;
  createdAt: string | null;
}

/** A file that code has made or changed. */
export interface RunArtifact {
  /** Relative to the working folder. */
  path: string;
  size: number;
  /** By the ending of its name. */
  mime: string;
  /** base64; null: it was too large. */
  content: string | null;
}

/** What code gave that was run in a sandbox of its own. */
export interface RunResult extends Omit<Execution, 'context'> {
  artifacts: RunArtifact[];
  /** How many more there were. */
  artifactsDropped: number;
}

export interface RunOptions extends Omit<RunCodeOptions, 'context'> {
  /** Written before it begins: by path, relative to the working folder. */
  files?: Record<string, string | Uint8Array>;
  /** Installed before it begins, by pip or npm. */
  packages?: readonly string[];
  image?: string;
  isolation?: CreateOptions['isolation'];
  template?: string;
  limits?: Pick<CreateOptions, 'cpus' | 'memory' | 'disk' | 'pids' | 'nofile' | 'inodes' | 'ioBps'>;
  network?: CreateOptions['network'];
  secrets?: CreateOptions['secrets'];
  /** Files that it makes: all but hidden ones, or those that match a pattern. */
  artifacts?: boolean | readonly string[];
}

type Wire = Record<string, unknown>;

function execution(wire: Wire): Execution {
  const { results, error, ...rest } = wire;
  const list = listOf((results ?? []) as Wire[], 'results').map((r) => new CodeResult(r));
  const verdict = fromWire<CodeVerdict | undefined>(rest.verdict);
  const main = list.filter((r) => r.isMain).pop();
  return {
    ...fromWire<Omit<Execution, 'results' | 'error' | 'ok' | 'text'>>(rest),
    results: list,
    error: (error ?? null) as CodeError | null,
    ok: verdict?.cause === 'ok',
    text: main?.text,
  };
}

// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export interface Context extends ContextInfo {}

/** One context. Its fields are what the server said last. */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export class Context {
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal Made by `sandbox.contexts`. */
  constructor(transport: Transport, sandbox: string, wire: unknown) {
    this.#transport = transport;
    this.#take(wire);
    this.#path = `${sandbox}/contexts/${encodeURIComponent(this.id)}`;
  }

  #take(wire: unknown): this {
    for (const [k, v] of Object.entries(fromWire<ContextInfo>(wire)))
      if (!(k in Context.prototype)) Object.assign(this, { [k]: v });
    return this;
  }

  #call(method: string, sub: string, o: CallOptions, json?: unknown): Call {
    return { method, path: this.#path + sub, json, signal: o.signal, timeout: o.requestTimeout };
  }

  /* How long code may run is the server's clock to say. */
  #execute(code: string, o: ExecuteOptions): Call {
    if (typeof code !== 'string') throw new InvalidError(`code must be a string, not ${typeof code}`, { code: 'invalid' });
    const call = this.#call('POST', '/execute', o, { code, timeout: o.timeout, env: o.env });
    return { ...call, timeout: o.requestTimeout ?? 0 };
  }

  /** Asks the server how it is now. */
  async refresh(options: CallOptions = {}): Promise<this> {
    return this.#take(await this.#transport.json(this.#call('GET', '', options)));
  }

  /**
   * Runs code and gives what it gave, also if it failed. With callbacks it comes while the code runs. Aborting the signal
   * interrupts the code; the variables stay.
   */
  async execute(code: string, options: Omit<RunCodeOptions, 'language' | 'context'> = {}): Promise<Execution> {
    const { onStdout, onStderr, onResult, onError } = options;
    if (!onStdout && !onStderr && !onResult && !onError)
      return execution(await this.#transport.json<Wire>(this.#execute(code, options)));
    return follow(this.stream(code, options), options);
  }

  /** The same piece by piece. Leaving the loop before its end interrupts the code. */
  stream(code: string, options: ExecuteOptions = {}): AsyncGenerator<CodeEvent, void, void> {
    return codeEvents(this.#transport, this.#execute(code, options));
  }

  /** As Ctrl-C: variables stay. Whether something ran. */
  async interrupt(options: CallOptions = {}): Promise<boolean> {
    const wire = await this.#transport.json<{ interrupted: boolean }>(this.#call('POST', '/interrupt', options));
    return wire.interrupted;
  }

  /** A new interpreter with the same settings: variables go. */
  async restart(options: CallOptions = {}): Promise<this> {
    const call = this.#call('POST', '/restart', options);
    return this.#take(await this.#transport.json({ ...call, timeout: options.requestTimeout ?? 0 }));
  }

  async delete(options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ ...this.#call('DELETE', '', options), goneIsDone: true });
  }

  async #ask<T>(what: string, o: CallOptions, json: unknown): Promise<T> {
    return this.#transport.json<T>({ ...this.#call('POST', what, o, json), repeatable: true });
  }

  /** What can be written at the cursor, in characters; by default at the end. */
  complete(code: string, options: CallOptions & { cursor?: number } = {}): Promise<{ matches: string[]; start: number; end: number }> {
    return this.#ask('/complete', options, { code, cursor: options.cursor });
  }

  /** Whether it can run, or a terminal should ask for another line. */
  isComplete(code: string, options: CallOptions = {}): Promise<{ status: 'complete' | 'incomplete' | 'invalid'; indent?: string }> {
    return this.#ask('/is_complete', options, { code });
  }

  /** What the name at the cursor is; its source with `detail: 1`. */
  inspect(
    code: string,
    options: CallOptions & { cursor?: number; detail?: 0 | 1 } = {},
  ): Promise<{ found: boolean; mime?: Record<string, unknown> }> {
    return this.#ask('/inspect', options, { code, cursor: options.cursor, detail: options.detail });
  }

  /** Code that was run. */
  async history(options: CallOptions & { last?: number } = {}): Promise<{ executionCount: number; code: string }[]> {
    const call = get(`${this.#path}/history`, options, { last: options.last });
    return fromWire((await this.#transport.json<{ cells: unknown[] }>(call)).cells);
  }
}

async function* codeEvents(transport: Transport, plain: Call): AsyncGenerator<CodeEvent, void, void> {
  const answer = await transport.stream({ ...plain, headers: { accept: 'text/event-stream' } });
  const texts = { stdout: '', stderr: '' };
  const results: Wire[] = [];
  let error: unknown = null;
  try {
    for await (const { event, data } of readEvents(answer.body as AsyncIterable<Uint8Array>, MAX_EVENT)) {
      const wire = parsed(data);
      if (event === 'stdout' || event === 'stderr') {
        texts[event] += wire.text as string;
        yield { type: event, text: wire.text as string };
      } else if (event === 'result') {
        results.push(wire);
        yield { type: 'result', result: new CodeResult(wire) };
      } else if (event === 'error') {
        error = wire;
        yield { type: 'error', error: wire as unknown as CodeError };
      } else if (event === 'clear') yield { type: 'clear', wait: wire.wait === true };
      else if (event === 'end') {
        yield { type: 'end', execution: execution({ ...wire, ...texts, results, error }) };
        return;
      }
    }
  } finally {
    answer.body.destroy();
  }
  throw cut();
}

/* Calls back for each event, up to the end. */
async function follow(events: AsyncIterable<CodeEvent>, to: RunCodeOptions): Promise<Execution> {
  for await (const e of events) {
    if (e.type === 'stdout') to.onStdout?.(e.text);
    else if (e.type === 'stderr') to.onStderr?.(e.text);
    else if (e.type === 'result') to.onResult?.(e.result);
    else if (e.type === 'error') to.onError?.(e.error);
    else if (e.type === 'end') return e.execution;
  }
  throw cut();
}

/* How long code may run is the server's clock to say. Names of files and variables are the caller's own. */
function runCall(code: string, options: RunOptions): Call {
  if (typeof code !== 'string') throw new InvalidError(`code must be a string, not ${typeof code}`, { code: 'invalid' });
  const { signal, requestTimeout, onStdout, onStderr, onResult, onError, files, env, ...rest } = options;
  const given = files && Object.entries(files).map(([path, data]) => [path, typeof data === 'string' ? data : { base64: Buffer.from(data).toString('base64') }]);
  const json = { ...(toWire(rest) as Wire), code, env, files: given && Object.fromEntries(given) };
  return { method: 'POST', path: '/v1/run', json, signal, timeout: requestTimeout ?? 0 };
}

/** @internal For `client.run`. */
export async function runOnce(transport: Transport, code: string, options: RunOptions): Promise<RunResult> {
  const call = runCall(code, options);
  if (!options.onStdout && !options.onStderr && !options.onResult && !options.onError)
    return execution(await transport.json<Wire>(call)) as unknown as RunResult;
  return (await follow(codeEvents(transport, call), options)) as unknown as RunResult;
}

const parsed = (data: string): Wire => parseObject<Wire>(data, 'an event');

function cut(): ConnectionError {
  return new ConnectionError('the stream ended before the code did', { code: 'connection', remedy: 'the context continues' });
}

export class Contexts {
  readonly #transport: Transport;
  readonly #sandbox: string;

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /** Makes one; it is ready when this resolves. */
  async create(options: ContextOptions = {}): Promise<Context> {
    const { signal, requestTimeout, ...fields } = options;
    const call = { method: 'POST', path: `${this.#sandbox}/contexts`, json: toWire(fields), signal, timeout: requestTimeout ?? 0 };
    return new Context(this.#transport, this.#sandbox, await this.#transport.json(call));
  }

  /** All of them, first the default ones of Python and JavaScript. */
  async list(options: CallOptions = {}): Promise<Context[]> {
    const wire = await this.#transport.json<{ contexts: unknown[] }>(get(`${this.#sandbox}/contexts`, options));
    return wire.contexts.map((x) => new Context(this.#transport, this.#sandbox, x));
  }

  /** By its id. The default one of a language has its name. */
  async get(id: string, options: CallOptions = {}): Promise<Context> {
    const call = get(`${this.#sandbox}/contexts/${encodeURIComponent(id)}`, options);
    return new Context(this.#transport, this.#sandbox, await this.#transport.json(call));
  }

  /** @internal For calls on it, without asking the server first. */
  named(id: string): Context {
    return new Context(this.#transport, this.#sandbox, { id, language: id, default: true, state: 'stopped' });
  }
}

/*
 * What a language model is given to use a sandbox: which tools there are, what they take, and what their answers look like.
 * The definitions are JSON Schema, so that any framework can have them. The Python SDK has the same tools (cloche/tools.py).
 */
import {
  ClocheError,
  ConflictError,
  InvalidError,
  NotFoundError,
  RefusedError,
} from './errors.js';
import type { Sandbox } from './sandbox.js';
import type { Duration, FileStat, Result } from './types.js';

export interface JsonSchema {
  type: string;
  description?: string;
  minimum?: number;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: boolean;
}

/** One tool, as a model sees it. */
export interface ToolDefinition {
  name: string;
  description: string;
  parameters: JsonSchema & { type: 'object'; properties: Record<string, JsonSchema>; required: string[] };
}

/** What a tool answers. `isError`: the call itself failed; a command that exits with 1 is an answer like others. */
export interface ToolAnswer {
  text: string;
  isError: boolean;
}

export interface ToolsOptions {
  /** The names of those that are offered; all by default. */
  only?: readonly string[];
  /** Ends commands of calls that set none; a minute by default. */
  timeout?: Duration;
  /** About how many characters an answer may have; 30,000 by default. */
  maxText?: number;
}

const READ_LINES = 2000;
const MAX_FILE = 16 * 1024 * 1024;
const KINDS: Record<string, string> = { dir: '/', link: '@', other: '?' };

const text = (description: string): JsonSchema => ({ type: 'string', description });
const count = (description: string): JsonSchema => ({ type: 'integer', description, minimum: 1 });

function tool(
  name: string,
  description: string,
  required: Record<string, JsonSchema>,
  optional: Record<string, JsonSchema> = {},
): ToolDefinition {
  const properties = { ...required, ...optional };
  return {
    name,
    description,
    parameters: { type: 'object', properties, required: Object.keys(required), additionalProperties: false },
  };
}

const PATH = text('Path of the file in the sandbox; a relative one starts at the work folder.');
const TIMEOUT = count('Seconds after which the command is ended.');

const DEFINITIONS: readonly ToolDefinition[] = [
  tool(
    'run_command',
    'Runs a command line with /bin/sh in the sandbox and answers with its output and exit code. Each call is a shell of its own; files stay.',
    { command: text('The command line.') },
    { timeout: TIMEOUT },
  ),
  tool(
    'run_python',
    'Runs a Python program in the sandbox and answers with what it printed. Each call is a process of its own; files stay.',
    { code: text('The program.') },
    { timeout: TIMEOUT },
  ),
  tool('read_file', 'Reads a text file of the sandbox. Lines have numbers in front.', { path: PATH }, {
    offset: count('The first line to read, counted from 1.'),
    limit: count(`How many lines to read, ${READ_LINES} by default.`),
  }),
  tool('write_file', 'Writes a text file of the sandbox as a whole. Folders above it are made.', {
    path: PATH,
    content: text('All of its new content.'),
  }),
  tool(
    'edit_file',
    'Replaces a text in a file of the sandbox. The text must occur exactly once, unless replace_all is true.',
    {
      path: PATH,
      old: text('The text to replace, as it is in the file.'),
      new: text('What takes its place.'),
    },
    { replace_all: { type: 'boolean', description: 'Replace each occurrence.' } },
  ),
  tool(
    'list_files',
    'Lists a folder of the sandbox.',
    { path: text('Path of the folder; "." is the work folder.') },
    { depth: count('How many levels to list, 1 by default.') },
  ),
];

type Arguments = Record<string, string | number | boolean | undefined>;

function invalid(message: string, remedy?: string): InvalidError {
  return new InvalidError(message, { code: 'invalid', remedy });
}

function find(offered: readonly ToolDefinition[], name: string): ToolDefinition {
  const found = offered.find((d) => d.name === name);
  if (!found) throw invalid(`no tool '${name}'`, `one of: ${offered.map((d) => d.name).join(', ')}`);
  return found;
}

function fits(value: unknown, schema: JsonSchema): boolean {
  if (schema.type === 'integer') return Number.isSafeInteger(value) && (value as number) >= (schema.minimum ?? -Infinity);
  return typeof value === schema.type;
}

/** The arguments of a call, as a model wrote them; an InvalidError says what is wrong with them. */
function checked(offered: readonly ToolDefinition[], name: string, given: unknown): Arguments {
  const { properties, required } = find(offered, name).parameters;
  let value = given;
  if (typeof value === 'string') {
    try {
      value = JSON.parse(value || '{}');
    } catch (e) {
      throw new InvalidError(`the arguments of ${name} are not JSON`, { code: 'invalid', cause: (e as Error).message });
    }
  }
  value ??= {};
  if (typeof value !== 'object' || Array.isArray(value)) throw invalid(`the arguments of ${name} must be an object`);
  const found: Arguments = {};
  for (const [key, argument] of Object.entries(value as object)) {
    const schema = Object.hasOwn(properties, key) ? properties[key] : undefined;
    if (!schema) throw invalid(`${name} has no argument '${key}'`, `one of: ${Object.keys(properties).join(', ')}`);
    if ((argument === null || argument === undefined) && !required.includes(key)) continue; // models say null for what they leave out
    if (!fits(argument, schema)) {
      const expected = schema.type + (schema.minimum === undefined ? '' : ` of at least ${schema.minimum}`);
      throw invalid(`${name}: ${key} must be ${expected}, got ${JSON.stringify(argument)}`);
    }
    found[key] = argument as string;
  }
  for (const key of required) if (!(key in found)) throw invalid(`${name} needs '${key}'`);
  return found;
}

/** The beginning and the end of a text that is too long. */
function shortened(s: string, limit: number): string {
  if (s.length <= limit) return s;
  const tail = Math.floor(limit / 2);
  return `${s.slice(0, limit - tail)}\n[${s.length - limit} characters are left out here]\n${s.slice(s.length - tail)}`;
}

function answerOf(r: Result, limit: number): string {
  const parts = [shortened(r.stdout, limit)];
  if (r.stderr) parts.push((r.stdout ? '[stderr]\n' : '') + shortened(r.stderr, limit));
  const dropped = r.truncated.stdoutDropped + r.truncated.stderrDropped;
  if (dropped) parts.push(`[${dropped} bytes of output are left out]`);
  if (r.verdict.cause !== 'exited') parts.push(`[${r.verdict.cause}: ${r.verdict.detail ?? 'the command was ended'}]`);
  else if (r.exitCode !== 0) parts.push(`[exit code ${r.exitCode}]`);
  return parts.filter((p) => p).map((p) => p.replace(/\n+$/, '')).join('\n') || '[no output]';
}

function utf8(data: Uint8Array, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw invalid(`${path} is not text in UTF-8`);
  }
}

/** Some lines of a file, with their numbers. */
function page(content: string, path: string, offset: number, limit: number, room: number): string {
  if (content === '') return '[the file is empty]';
  const lines = content.replace(/\n$/, '').split('\n');
  if (offset > lines.length) throw invalid(`${path} has ${lines.length} lines, offset is ${offset}`);
  const last = Math.min(lines.length, offset - 1 + limit);
  const shown = lines.slice(offset - 1, last).map((line, i) => `${String(offset + i).padStart(6)}\t${line}`);
  return shortened(shown.join('\n'), room) + (last < lines.length ? `\n[lines ${last + 1} to ${lines.length} follow]` : '');
}

function said(e: ClocheError): string {
  const cause = typeof e.cause === 'string' && !e.message.includes(e.cause) ? `: ${e.cause}` : '';
  return e.message + cause + (e.remedy ? `; ${e.remedy}` : '');
}

/** What a model can do something about. Other errors (no connection, the sandbox ended) are thrown. */
function isForTheModel(e: unknown): e is ClocheError {
  return (
    e instanceof InvalidError ||
    e instanceof NotFoundError ||
    e instanceof ConflictError ||
    e instanceof RefusedError ||
    (e instanceof ClocheError && e.code === 'too_large')
  );
}

/** The tools of one sandbox: definitions for a model's request, and calls by name for its answer. */
export class Tools {
  readonly definitions: readonly ToolDefinition[];
  readonly #timeout: Duration;
  readonly #maxText: number;

  constructor(
    readonly sandbox: Sandbox,
    options: ToolsOptions = {},
  ) {
    const { only } = options;
    for (const name of only ?? []) find(DEFINITIONS, name);
    this.definitions = only ? DEFINITIONS.filter((d) => only.includes(d.name)) : DEFINITIONS;
    this.#timeout = options.timeout ?? 60;
    this.#maxText = options.maxText ?? 30_000;
  }

  /** For `tools` of Anthropic's Messages API. */
  anthropic(): { name: string; description: string; input_schema: ToolDefinition['parameters'] }[] {
    return this.definitions.map((d) => ({ name: d.name, description: d.description, input_schema: d.parameters }));
  }

  /** For `tools` of OpenAI's Responses API. */
  openai(): { type: 'function'; name: string; description: string; parameters: Record<string, unknown>; strict: false }[] {
    return this.definitions.map((d) => ({ type: 'function', ...d, parameters: { ...d.parameters }, strict: false }));
  }

  /**
   * Calls one of them, with the model's JSON or what it means. Mistakes of a model are answers that say so; failures of the
   * connection are thrown. Aborting the signal ends the command.
   */
  async call(name: string, given?: unknown, options: { signal?: AbortSignal } = {}): Promise<ToolAnswer> {
    try {
      return { text: await this.#run(name, checked(this.definitions, name, given), options.signal), isError: false };
    } catch (e) {
      if (!isForTheModel(e)) throw e;
      if (e instanceof NotFoundError) await this.sandbox.refresh(); // a sandbox that is gone is no mistake of the model: this throws
      return { text: `error: ${said(e)}`, isError: true };
    }
  }

  async #run(name: string, a: Arguments, signal?: AbortSignal): Promise<string> {
    const { files } = this.sandbox;
    const path = String(a.path);
    const timeout = (a.timeout as number | undefined) ?? this.#timeout;
    switch (name) {
      case 'run_command':
        return answerOf(await this.sandbox.exec(String(a.command), { timeout, signal }), this.#maxText);
      case 'run_python':
        return answerOf(await this.sandbox.exec(['python3', '-'], { stdin: String(a.code), timeout, signal }), this.#maxText);
      case 'read_file': {
        const content = utf8(await this.#file(path, signal), path);
        return page(content, path, Number(a.offset ?? 1), Number(a.limit ?? READ_LINES), this.#maxText);
      }
      case 'write_file': {
        const done = await files.write(path, String(a.content), { signal });
        return `${done.path}: ${done.size} bytes`;
      }
      case 'edit_file':
        return this.#edit(path, String(a.old), String(a.new), a.replace_all === true, signal);
      default:
        return this.#list(path, a.depth as number | undefined, signal);
    }
  }

  async #edit(path: string, old: string, next: string, all: boolean, signal?: AbortSignal): Promise<string> {
    const content = utf8(await this.#file(path, signal), path);
    if (old === '') throw invalid('old must not be empty');
    const parts = content.split(old);
    if (parts.length === 1) throw invalid(`${path} does not contain the text`);
    if (parts.length > 2 && !all)
      throw invalid(`${path} contains the text ${parts.length - 1} times`, 'include more of the lines around it, or set replace_all');
    await this.sandbox.files.write(path, parts.join(next), { signal });
    return `${path}: ${parts.length - 1} replaced`;
  }

  async #list(path: string, depth: number | undefined, signal?: AbortSignal): Promise<string> {
    const found = await this.sandbox.files.list(path, { depth, signal });
    const line = (f: FileStat) => `${f.path}${KINDS[f.type] ?? ''}${f.type === 'file' ? ` ${f.size}` : ''}`;
    const lines = [...found].sort((a, b) => (a.path < b.path ? -1 : 1)).map(line);
    if (found.truncated) lines.push('[there is more]');
    return shortened(lines.join('\n'), this.#maxText) || '[the folder is empty]';
  }

  async #file(path: string, signal?: AbortSignal): Promise<Buffer> {
    try {
      const data = await this.sandbox.files.read(path, { length: MAX_FILE + 1, signal });
      if (data.length > MAX_FILE) throw invalid(`${path} has more than ${MAX_FILE} bytes`, 'read it by a command');
      return data;
    } catch (e) {
      if (e instanceof ClocheError && e.status === 416) return Buffer.alloc(0); // an empty file has no first byte
      throw e;
    }
  }
}

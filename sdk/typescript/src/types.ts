import type { BodySource } from './http.js';

/** Bytes, or a text like `"512M"`. */
export type Size = number | string;
/** Seconds (also fractions), or a text like `"30s"`, `"5m"`. What the server measures is in seconds, as on the wire. */
export type Duration = number | string;

/** What every call may be given. */
export interface CallOptions {
  signal?: AbortSignal;
  /** Milliseconds this side waits for the answer; 0 = for ever. Default: the client's `timeout`. */
  requestTimeout?: number;
}

export type Isolation = 'process' | 'container' | 'vm' | 'wasm';
export type SandboxState = 'running' | 'paused' | 'lost';
export type Network = 'none' | 'open' | { mode: string; allow?: string[] };

export interface CreateOptions extends CallOptions {
  /** Unique within the tenant while it lives. Default: the id. */
  name?: string;
  /** Get-or-create: the same key always reaches the same sandbox. */
  key?: string;
  template?: string;
  image?: string;
  isolation?: Isolation;
  cpus?: number;
  memory?: Size;
  disk?: Size;
  pids?: number;
  nofile?: number;
  inodes?: number;
  ioBps?: Size;
  /** Bytes of stdout and of stderr an exec's answer carries. */
  outputLimit?: Size;
  /** Until it is deleted; 0 = never. */
  timeout?: Duration;
  /** Without a call until it is deleted; 0 = never. */
  idle?: Duration;
  /** Default wall time of an exec; 0 = none. */
  execTimeout?: Duration;
  network?: Network;
  /** For every exec. */
  env?: Record<string, string>;
  /** To find it again. */
  metadata?: Record<string, string>;
  /** `user`, `root` or `"UID:GID"`. */
  user?: string;
  workdir?: string;
  readOnly?: boolean;
  storage?: 'memory' | 'disk';
  tmpfs?: { path: string; size: Size }[];
  mounts?: { source: string; target: string; readOnly?: boolean }[];
  hostname?: string;
  /** Makes a repetition of this very call harmless. Default: a random one. */
  idempotencyKey?: string;
}

/** A sandbox as the server describes it. */
export interface SandboxInfo {
  id: string;
  name: string;
  key: string | null;
  tenant: string;
  state: SandboxState;
  isolation: Isolation;
  image: string;
  cpus: number;
  memory: number;
  disk: number;
  inodes: number;
  ioBps: number;
  pids: number;
  nofile: number;
  outputLimit: number;
  timeout: number;
  idle: number;
  execTimeout: number;
  network: { mode: string };
  env: Record<string, string>;
  metadata: Record<string, string>;
  user: string;
  workdir: string;
  readOnly: boolean;
  storage: string;
  tmpfs: { path: string; size: number }[];
  mounts: { source: string; target: string; readOnly: boolean }[];
  hostname: string;
  createdAt: string;
  expiresAt: string | null;
  lastUsedAt: string;
  /** The receipt: what of the request the host enforces, and by what. Names as on the wire. */
  enforced: Record<string, unknown>;
}

export interface ListOptions extends CallOptions {
  state?: SandboxState;
  name?: string;
  metadata?: Record<string, string>;
  /** Sandboxes per page, up to 1000. */
  pageSize?: number;
  /** Admin: another tenant's, or `*` for all. */
  tenant?: string;
}

export interface UpdateOptions extends CallOptions {
  /** Counts from now. */
  timeout?: Duration;
  idle?: Duration;
  metadata?: Record<string, string>;
  name?: string;
}

/** A shell line (run by `/bin/sh -c`), or a program and its arguments. */
export type Command = string | readonly string[];

export interface ExecOptions extends CallOptions {
  cwd?: string;
  env?: Record<string, string>;
  user?: string;
  /** Wall time; then the whole process tree is killed and the verdict is `timeout`. */
  timeout?: Duration;
  cpuTime?: Duration;
  outputLimit?: Size;
  nofile?: number;
  /** Given to the command, then closed. */
  stdin?: string | Uint8Array;
  /** Output need not be UTF-8: adds `stdoutBytes` and `stderrBytes` to the result. */
  binary?: boolean;
}

export interface StartOptions extends Omit<ExecOptions, 'stdin' | 'binary'> {
  /** `true` opens `.stdin`; text or bytes are given to the command, then it is closed. */
  stdin?: boolean | string | Uint8Array;
  /** A terminal: one stream, `tty`, and `.stdin` is its keyboard. */
  tty?: boolean | { rows: number; cols: number };
  /** How output arrives. WebSocket unless the client was given its own `fetch`. */
  transport?: 'websocket' | 'sse';
}

export interface BackgroundOptions extends Omit<StartOptions, 'transport'> {
  idempotencyKey?: string;
}

export type VerdictCause =
  | 'exited' | 'signaled' | 'timeout' | 'cpu' | 'oom' | 'pids' | 'disk' | 'output' | 'seccomp' | 'killed' | 'lost';

/** Why an exec ended. */
export interface Verdict {
  cause: VerdictCause;
  detail: string | null;
  limit: number | null;
  peak: number | null;
}

export interface Usage {
  wallMs: number;
  cpuMs: number;
  memoryPeak: number;
  ioBytes: number;
  netBytes: number;
}

export interface Truncation {
  stdout: boolean;
  stderr: boolean;
  stdoutDropped: number;
  stderrDropped: number;
  fullUrl: string | null;
}

/** How an exec ended. */
export interface Result {
  id: string;
  sandbox: string;
  state: 'ended';
  /** 128+N for signal N, 124 for a timeout, 137 for a limit. */
  exitCode: number;
  signal: number | string | null;
  verdict: Verdict;
  stdout: string;
  stderr: string;
  stdoutBytes?: Buffer;
  stderrBytes?: Buffer;
  truncated: Truncation;
  usage: Usage;
  startedAt: string;
  endedAt: string;
  /** Ended by itself with 0. */
  ok: boolean;
}

/** An exec in a list. */
export interface ExecInfo {
  id: string;
  state: 'running' | 'ended';
  cmd: string[];
  user: string;
  startedAt: string;
  endedAt: string | null;
  exitCode: number | null;
  background: boolean;
  tty: boolean;
}

/** A piece of output, in the order it came. */
export interface OutputChunk {
  stream: 'stdout' | 'stderr' | 'tty';
  data: Buffer;
  /** The same as text; a character that two pieces share is in the second. */
  text: string;
}

export type Signal = string | number;

export interface Stats {
  cpuMs: number;
  cpuThrottledMs: number;
  memory: number;
  memoryPeak: number;
  pids: number;
  pidsPeak: number;
  disk: number;
  diskLimit: number;
  inodes: number;
  ioBytes: number;
  netBytes: number;
  execs: number;
}

/** `sandbox.created`, `exec.ended`, `file.written`, …; with its own fields in `data`. */
export interface SandboxEvent {
  id: string | undefined;
  type: string;
  data: Record<string, unknown>;
}

export interface FileOptions extends CallOptions {
  user?: string;
}

export interface FileStat {
  path: string;
  type: 'file' | 'dir' | 'link' | 'other';
  size: number;
  /** Octal, as in `0644`. */
  mode: string;
  uid: number;
  gid: number;
  mtime: string;
  /** Of a link. */
  target?: string;
}

export interface ReadOptions extends FileOptions {
  /** First byte, default 0. */
  offset?: number;
  /** At most so many bytes. */
  length?: number;
}

export interface WriteOptions extends FileOptions {
  /** Octal text (`"0755"`) or a number (`0o755`). */
  mode?: string | number;
  /** Missing folders are made, default true. */
  mkdirs?: boolean;
  append?: boolean;
}

export type WriteSource = BodySource;

export interface FileEvent {
  type: 'created' | 'modified' | 'removed' | 'moved';
  path: string;
  /** Of the thing itself. */
  kind: string | undefined;
}

export interface ExtractResult {
  files: number;
  bytes: number;
  skipped: { name: string; why: string }[];
}

export interface Checkpoint {
  id: string;
  name: string | null;
  label: string | null;
  sandbox: string;
  createdAt: string;
  [more: string]: unknown;
}

export interface ServerInfo {
  version: string;
  api: number;
  isolation: string[];
  limits: Record<string, unknown>;
  counts: Record<string, number>;
  /** What this server can do beyond the first version of its API. */
  features?: Record<string, unknown>;
  [more: string]: unknown;
}

export interface Whoami {
  tenant: string;
  scope?: 'read' | 'exec' | 'sandbox' | 'admin';
  token: { id: string; name: string };
  userId: string;
  name: string;
}

export interface Rate {
  points: number;
  window: number;
  block: number;
}

export interface Token {
  id: string;
  /** Only in the answer that made it. */
  token?: string;
  tenant: string;
  name: string | null;
  [more: string]: unknown;
}

export interface Tenant {
  id: string;
  quotas: { sandboxes?: number; cpus?: number; memory?: number; disk?: number; execs?: number };
  rate?: Rate | null;
  [more: string]: unknown;
}

export interface AuditRecord {
  seq: number;
  time: string;
  kind: string;
  [more: string]: unknown;
}

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
export type SandboxState = 'running' | 'paused' | 'hibernated' | 'stopped' | 'lost';
/** What happens after so long without a call. A call wakes what was paused or hibernated so. */
export interface Idle {
  pause?: Duration;
  hibernate?: Duration;
  delete?: Duration;
}
/** What may be used, ever; 0 or nothing: no bound. Of sizes also texts like `"10M"`. */
export interface NetworkBudget {
  bytesOut?: Size;
  bytesIn?: Size;
  connections?: number;
  concurrent?: number;
  /** Bytes a second, both ways together. */
  bandwidth?: Size;
  dns?: number;
  /** Of one name. */
  requestsPerMinute?: number;
}
/** What a sandbox may reach. A rule: `name`, `*.name`, `address/n` or `@set`, with `:ports`; else 80 and 443. */
export interface NetworkPolicy {
  mode?: 'none' | 'allow' | 'open' | 'observe';
  allow?: string[];
  budget?: NetworkBudget;
  /** Of it and its forks together. */
  treeBudget?: NetworkBudget;
}
export type Network = 'none' | 'open' | 'observe' | NetworkPolicy;

export interface NetworkCounts {
  bytesOut: number;
  bytesIn: number;
  connections: number;
  concurrent: number;
  refused: number;
  dns: number;
  dnsRefused: number;
}

/** What is in force, and what it used. */
export interface NetworkState {
  policy: NetworkPolicy & { mode: string };
  /** `in force`, `off`, `hibernated`, or `closed`: nothing passes until egress is back. */
  state: string;
  counts: NetworkCounts;
  /** Of it and its forks together. */
  treeCounts: NetworkCounts;
  /** Mode `observe`: the rules that would have been enough. */
  observed?: { allow: string[]; complete: boolean };
}

/** Something it wanted to reach and was refused. */
export interface NetworkRefusal {
  time: string;
  first: string;
  times: number;
  /** A name or an address. */
  to: string;
  port: number | null;
  /** unreachable: it is allowed, and its server could not be reached. */
  what: 'stream' | 'lookup' | 'unreachable';
  /** Inside. */
  pid: number | null;
  command: string | null;
  /** Of a virtual machine: both are what it says of itself. */
  claimed?: true;
  reason: string;
  /** That would allow it; null: none can. */
  rule: string | null;
  fix: string;
}

export interface PortOptions extends CallOptions {
  /** Anybody may use it. */
  public?: boolean;
  /** true: a new token for this port only, and one from before ends; false: none. */
  token?: boolean;
}

/** A port of a sandbox that others may use. */
export interface Port {
  port: number;
  public: boolean;
  hasToken: boolean;
  /** Only in the answer that made it. */
  token?: string;
  /** Below the server's URL. */
  path: string;
  /** Its own host name, where the server has one for it. */
  host: string | null;
  createdAt: string | null;
}

/** How a sandbox gets a secret. Those with `to` are added to its requests for that host alone: it never sees them. */
export type SecretUse =
  | { name: string; as: 'file'; /** Also a link to /run/secrets/NAME from here. */ path?: string }
  | { name: string; as: 'env'; /** The variable. Default: the secret's name. */ env?: string }
  | { name: string; as: 'header'; to: string; header?: string; /** With one `{}`. */ format?: string; plain?: boolean }
  | { name: string; as: 'basic'; to: string; user: string; plain?: boolean }
  | { name: string; as: 'query'; to: string; parameter: string; plain?: boolean }
  | { name: string; as: 'mask' };
/** `drop`: none, although the template or checkpoint has some. */
export type SecretUses = SecretUse[] | 'drop';

/** A secret as the server describes it: never its value. */
export interface Secret {
  name: string;
  tenant: string;
  version: number;
  size: number;
  description: string | null;
  createdAt: string;
  updatedAt: string;
}

export interface SetSecretOptions extends CallOptions {
  description?: string;
}

export interface CreateOptions extends CallOptions {
  /** Unique within the tenant while it lives. Default: the id. */
  name?: string;
  /** Get-or-create: the same key always reaches the same sandbox. */
  key?: string;
  /** Its settings, below the ones given here; from a pool where there is one. */
  template?: string;
  /** Its files (and memory) and settings, below the ones given here. */
  checkpoint?: string;
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
  /** Without a call until it is deleted; 0 = never. Or what else shall happen then. */
  idle?: Duration | Idle;
  /** Default wall time of an exec; 0 = none. */
  execTimeout?: Duration;
  network?: Network;
  /** For every exec. */
  env?: Record<string, string>;
  secrets?: SecretUses;
  /** To find it again. */
  metadata?: Record<string, string>;
  /** `user`, `root` or `"UID:GID"`. */
  user?: string;
  workdir?: string;
  readOnly?: boolean;
  storage?: 'memory' | 'disk';
  tmpfs?: { path: string; size: Size }[];
  mounts?: { source: string; target: string; readOnly?: boolean }[];
  /** Names of the Container Device Interface, or nodes as /dev/fuse, that the daemon's configuration allows. */
  devices?: string[];
  /** `all`, `any`, `any:2`, or numbers or UUIDs with commas between them. */
  gpus?: string;
  /** Others that say the same may have the same GPUs. */
  gpusShared?: boolean;
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
  idle: number | Idle;
  execTimeout: number;
  network: NetworkPolicy & { mode: string };
  env: Record<string, string>;
  secrets: SecretUse[];
  metadata: Record<string, string>;
  user: string;
  workdir: string;
  readOnly: boolean;
  storage: string;
  tmpfs: { path: string; size: number }[];
  mounts: { source: string; target: string; readOnly: boolean }[];
  devices: string[];
  gpus: string | null;
  gpusShared: boolean;
  hostname: string;
  createdAt: string;
  expiresAt: string | null;
  lastUsedAt: string;
  /** The receipt: what of the request the host enforces, and by what. Names as on the wire. */
  enforced: Record<string, unknown>;
  /** Of one that was made of a template, or taken from a pool. */
  template?: string | null;
  pooled?: boolean;
  /** The id of the checkpoint it stands on. */
  fromCheckpoint?: string | null;
  /** In the answer that restored it. */
  restored?: Restored;
  /** In the answer that hibernated it: why its processes had to end. */
  memoryRefused?: string | null;
  /** In the answer that restored, forked, hibernated or woke it: connections to the outside that its processes lost. */
  cut?: Cut;
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
  idle?: Duration | Idle;
  metadata?: Record<string, string>;
  name?: string;
  /** Limits: by a call of their own, without the fields above. `disk`, and more `cpus` than it sees, only while it is hibernated. */
  cpus?: number;
  memory?: Size;
  disk?: Size;
  pids?: number;
}

/** A shell line (run by `/bin/sh -c`), a program and its arguments, or code for the warm Python of its template. */
export type Command = string | readonly string[] | { readonly code: string };

export interface ExecOptions extends CallOptions {
  cwd?: string;
  env?: Record<string, string>;
  user?: string;
  /** Wall time; then the whole process tree is killed and the verdict is `timeout`. */
  timeout?: Duration;
  cpuTime?: Duration;
  outputLimit?: Size;
  /** `merged`: stderr goes where stdout goes, in the order in which the command writes; `stderr` is empty. */
  output?: 'separate' | 'merged';
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
  /** `always`: begun again when the sandbox is started again, also after a reboot. Needs `storage: 'disk'`. */
  restart?: 'no' | 'always';
  idempotencyKey?: string;
}

export type VerdictCause =
  | 'exited' | 'signaled' | 'timeout' | 'cpu' | 'oom' | 'pids' | 'disk' | 'output' | 'seccomp' | 'killed' | 'lost';

/** Why an exec ended. */
export interface Verdict {
  cause: VerdictCause;
  detail: string | null;
  /** Only when the cause is `oom`: `memory`, or what the kernel kept for the sandbox, such as `sockets`. */
  oomKind?: string;
  /** How many processes the memory limit killed while it ran, whatever the cause; absent when none was. */
  oomKills?: number;
  /** That processes were killed by the memory limit although the cause is another. */
  warning?: string;
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
  /** Its first KiB, if cmdBytes is there. */
  cmd: string[];
  /** How long a command of more than a KiB was. */
  cmdBytes?: number;
  user: string;
  startedAt: string;
  endedAt: string | null;
  /** While it runs: when its timeout ends it. Null if it has none, and while the sandbox is paused or hibernated. */
  endsAt?: string | null;
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
  /** Only of a piece without data: bytes that the server has not kept, and where the stream continues. */
  gap?: OutputGap;
}

/** Output that was not kept. */
export interface OutputGap {
  /** Of the next byte that is there. */
  offset: number;
  /** How many bytes before it are missing. */
  lost: number;
}

export type Signal = string | number;

export interface Stats {
  cpuMs: number;
  cpuThrottledMs: number;
  memory: number;
  memoryPeak: number;
  pids: number;
  pidsPeak: number;
  /** Bytes the kernel keeps for the sandbox beside its memory, by kind; the memory limit counts them. */
  kernelMemory: Record<string, number>;
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

/** Running processes, too: `auto` takes the files only when they cannot be carried, and says so. */
export type Memory = boolean | 'auto';

export interface CheckpointOptions extends CallOptions {
  /** A text for people. */
  label?: string;
  /** To find it again. */
  metadata?: Record<string, string>;
  /** Default false. */
  memory?: Memory;
  /** Default `drop`. */
  network?: CopiedNetwork;
}

/** With memory: connections to the outside are reset in the copy, or a reason to refuse. */
export type CopiedNetwork = 'drop' | 'refuse';

/** Connections to the outside that processes lost when they were copied. */
export interface Cut {
  count: number;
  /** The first 32. */
  connections: {
    pid: number;
    command: string;
    fd: number | null;
    protocol: 'tcp' | 'udp';
    local: string;
    remote: string;
    host: string | null;
    /** Bytes (of UDP: datagrams) that had come, were not read yet, and are not in the copy. */
    unread: number;
  }[];
}

/** A state of a sandbox that was kept. It needs its sandbox no more, nor the sandboxes made of it this one. */
export interface Checkpoint {
  id: string;
  name: string | null;
  label: string | null;
  metadata: Record<string, string>;
  tenant: string;
  /** The id of the sandbox it was taken of. */
  sandbox: string;
  sandboxName: string | null;
  /** The checkpoint its sandbox was made of. */
  parent: string | null;
  image: string;
  isolation: Isolation;
  memory: boolean;
  /** Why there is no memory in it although it was asked for with `auto`. */
  memoryRefused: string | null;
  /** Connections to the outside that its processes do not have any more. */
  cut: Cut | null;
  /** Bytes of changed files. */
  size: number;
  memorySize: number;
  files: number;
  depth: number;
  /** So long its sandbox stood still. */
  pauseMs: number;
  state: 'made' | 'damaged';
  createdAt: string;
  /** What a create was asked for. */
  config: Record<string, unknown>;
  [more: string]: unknown;
}

export interface ListCheckpointsOptions extends CallOptions {
  /** Of this one, by id or (while it lives) name. */
  sandbox?: string;
  name?: string;
  label?: string;
  metadata?: Record<string, string>;
  pageSize?: number;
}

/** What was done for a sandbox that was made of a checkpoint before anything in it ran, and what could not be. */
export interface Restored {
  checkpoint: string | null;
  memory: boolean;
  /** Execs that go on. */
  execs: string[];
  done: string[];
  notDone: { what: string; why: string }[];
}

/** What of a create may differ from what the checkpoint has. */
export type Differing = Omit<CreateOptions, 'name' | 'key' | 'template' | 'checkpoint' | 'idempotencyKey'>;

export interface RestoreOptions extends Differing {
  /** The new sandbox's name. */
  as?: string;
}

export interface RestoreManyOptions extends Differing {
  /** 1 to 256; default: as many as there are names. */
  count?: number;
  names?: string[];
}

export interface ForkOptions extends CallOptions {
  names?: string[];
  /** Default `auto`. */
  memory?: Memory;
  /** Default `drop`. */
  network?: CopiedNetwork;
  /** Default: those it has, with the values they have now. */
  secrets?: SecretUses;
}

/** A state to compare with. */
export type DiffSource = 'image' | { checkpoint: string } | { sandbox: string };

export interface DiffOptions extends CallOptions {
  /** Default: its image. */
  from?: DiffSource;
  /** With a unified diff of files that are text. */
  text?: boolean;
}

export interface DiffEntry {
  path: string;
  /** Of a path that is not UTF-8. */
  pathBase64?: string;
  change: 'added' | 'changed' | 'removed';
  type: string;
  /** Null when it is gone. */
  size: number | null;
  /** Null when it is new. */
  oldSize: number | null;
  /** Octal, as in `0644`. */
  mode?: string;
  oldMode?: string;
  /** A unified diff. */
  text?: string;
}

export interface Diff {
  from: string;
  to: string;
  entries: DiffEntry[];
  truncated: boolean;
  added: number;
  changed: number;
  removed: number;
}

export interface Promoted {
  added: number;
  changed: number;
  removed: number;
  /** Paths that both had changed, with `force`. */
  conflicts: string[];
}

/** What makes a template's processes warm. */
export type Warm = ({ python: string } | { context: 'python' } | { cmd: readonly string[]; /** What it writes when it is ready. */ ready: string }) & {
  /** It must be ready within this time. */
  timeout?: Duration;
};

export interface TemplateOptions extends Omit<CreateOptions, 'name' | 'key' | 'template' | 'idempotencyKey'> {
  /** Started in the background of every new sandbox. */
  start?: { cmd: readonly string[] } | { shell: string };
  /** Run once, ahead: new sandboxes begin where it ended. */
  warm?: Warm;
  description?: string;
}

export interface Template {
  name: string;
  tenant: string;
  version: number;
  checkpoint: string | null;
  warm: (Record<string, unknown> & { ready: boolean | string; since?: string | null }) | null;
  start: Record<string, unknown> | null;
  config: Record<string, unknown>;
  description: string | null;
  createdAt: string;
  updatedAt: string;
}

export interface PoolOptions extends CallOptions {
  template: string;
  /** So many are kept ready, up to 256. */
  min: number;
  /** So many may live, those given out included; 0 = no bound. */
  max?: number;
}

export interface Pool {
  name: string;
  tenant: string;
  template: string;
  min: number;
  max: number;
  ready: number;
  /** Ready, or given out and still there. */
  alive: number;
  /** Creates that got one, and those that had to be made. */
  served: number;
  missed: number;
  failed: number;
  lastError: string | null;
  createdAt: string;
}

export interface ServerInfo {
  version: string;
  api: number;
  isolation: string[];
  limits: Record<string, unknown>;
  counts: Record<string, number>;
  /** The key that exports are signed with. */
  exportKey?: string | null;
  /** What this server can do beyond the first version of its API. */
  features?: Record<string, unknown>;
  /** What a VM of Noid's dialect gets that asks for nothing. */
  noid?: { isolation: Isolation; network: 'none' | 'open'; memMib: number; pids: number };
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

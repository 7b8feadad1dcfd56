import type { Isolation, Memory, Usage, Verdict } from '../types.js';

export interface NoidClientOptions {
  /** Where the server is. Default: `NOID_SERVER`, `NOID_URL`, `CLOCHE_URL`. */
  serverUrl?: string;
  /** The same by the name the other shape has for it. */
  baseUrl?: string;
  /** Of any form. Default: `NOID_TOKEN`, `CLOCHE_TOKEN`. */
  token?: string;
  /** Milliseconds this side waits for an answer, default 30,000. Commands have their own. */
  timeout?: number;
  /** Default 3. */
  retries?: number;
  /** Milliseconds, default 1000. */
  retryDelay?: number;
  /** A unix socket in place of host and port. */
  socketPath?: string;
  /** Tier of new VMs. `auto` (default): `vm` where the host has KVM, else `container`. Every VM's info says which it is. */
  isolation?: Isolation | 'auto';
}

/** What `createVM` takes. */
export interface CreateVMOptions {
  name: string;
  /** Default 1. */
  vcpus?: number;
  /** MiB, default 2048. */
  memory?: number;
  /** `isolated`: no network at all. Left out: the public internet, on a server that has a way out. */
  network?: 'isolated' | 'none' | 'open';
  /** For every command in it. */
  env?: Record<string, string>;
  isolation?: Isolation | 'auto';
}

/** What `createVm` takes besides the name. */
export interface CreateVmOptions {
  /** Default 1. */
  cpus?: number;
  /** MiB, default 2048. */
  memMib?: number;
  env?: Record<string, string>;
  network?: 'isolated' | 'none' | 'open';
  isolation?: Isolation | 'auto';
}

export type VmState = 'running' | 'paused' | 'stopped' | 'unknown';

/** A VM in the words of both shapes. */
export interface VmInfo {
  id: string;
  name: string;
  state: VmState;
  status: VmState;
  cpus: number;
  vcpus: number;
  /** MiB. */
  mem_mib: number;
  /** MiB. */
  memory: number;
  created_at: string;
  createdAt: string;
  /** What stands between it and the host. */
  isolation: string;
  /** `none`, `open`, … */
  network: string;
}

export type EnvVars = Record<string, string>;

/** How a command ended, in the words of both shapes. Output is there after a timeout, too. */
export interface ExecResult {
  /** 124 after a timeout. */
  exitCode: number;
  /** Null after a timeout. */
  exit_code: number | null;
  stdout: string;
  stderr: string;
  timedOut: boolean;
  timed_out: boolean;
  truncated: boolean;
  /** Why it ended. */
  verdict: Verdict;
  usage: Usage;
}

/** Of `client.exec`. */
export interface NoidExecOptions {
  /** Milliseconds; then the whole process tree is killed. */
  timeout?: number;
  env?: EnvVars;
  cwd?: string;
  stdin?: string | Uint8Array;
  signal?: AbortSignal;
}

/** Of `vm.exec`. */
export interface VmExecOptions {
  env?: EnvVars;
  tty?: boolean;
  /** Seconds; then the whole process tree is killed. */
  timeout?: number;
  signal?: AbortSignal;
}

/** A command as the REST API takes it. */
export interface ExecRequest {
  command: string[];
  tty?: boolean;
  env?: string[] | EnvVars;
}

export interface SpawnOptions {
  env?: EnvVars;
  tty?: boolean;
  rows?: number;
  cols?: number;
}

export interface ConsoleOptions {
  env?: EnvVars;
  /** Default 24. */
  rows?: number;
  /** Default 80. */
  cols?: number;
}

export interface CheckpointInfo {
  id: string;
  name: string | null;
  vm_name: string;
  vmName: string;
  label: string | null;
  created_at: string;
  createdAt: string;
}

export interface CreateCheckpointOptions {
  label?: string;
  /** With what runs in it. Default `auto`: if all of it can be carried, as a machine's snapshot would have it. */
  memory?: Memory;
}

export interface VersionInfo {
  version: string;
  api_version: number;
}

export interface WhoamiResponse {
  user_id: string;
  name: string;
}

/** Both as the REST API has them (flat) and as its client does (in groups). */
export interface Capabilities {
  api_version: number;
  max_exec_output_bytes: number;
  exec_timeout_secs: number;
  console_timeout_secs: number;
  max_vm_name_length: number;
  default_cpus: number;
  default_mem_mib: number;
  timeouts: { exec_timeout_secs: number; console_timeout_secs: number };
  limits: { max_env_vars: number; max_env_value_len: number };
  defaults: { cpus: number; mem_mib: number };
}

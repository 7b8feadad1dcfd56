import type { Result, SandboxInfo } from '../types.js';
import type { NoidClient } from './client.js';
import { NoidValidationError } from './errors.js';
import type { VmCommand, VmConsole } from './streams.js';
import type {
  CheckpointInfo,
  ConsoleOptions,
  CreateCheckpointOptions,
  EnvVars,
  ExecResult,
  SpawnOptions,
  VmExecOptions,
  VmInfo,
  VmState,
} from './types.js';

const MIB = 1024 * 1024;
const STATES: Record<string, VmState> = { running: 'running', paused: 'paused', hibernated: 'paused', stopped: 'stopped', lost: 'stopped' };

/** A sandbox in Noid's words. */
export function vmInfo(s: SandboxInfo): VmInfo {
  const state = STATES[s.state] ?? 'unknown';
  const mib = Math.round(s.memory / MIB);
  return {
    id: s.id,
    name: s.name,
    state,
    status: state,
    cpus: s.cpus,
    vcpus: s.cpus,
    mem_mib: mib,
    memory: mib,
    created_at: s.createdAt,
    createdAt: s.createdAt,
    isolation: s.isolation,
    network: s.network?.mode ?? 'none',
  };
}

/** A result in Noid's words. */
export function execResult(r: Result): ExecResult {
  const timedOut = r.verdict.cause === 'timeout';
  return {
    exitCode: r.exitCode,
    exit_code: timedOut ? null : r.exitCode,
    stdout: r.stdout,
    stderr: r.stderr,
    timedOut,
    timed_out: timedOut,
    truncated: r.truncated?.stdout === true || r.truncated?.stderr === true,
    verdict: r.verdict,
    usage: r.usage,
  };
}

export function checkName(name: string): void {
  if (typeof name !== 'string' || !/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/.test(name) || name.includes('..'))
    throw new NoidValidationError(
      'name',
      'a name has 1 to 64 of A-Z a-z 0-9 _ . -, does not begin with . or - and has no ..',
    );
}

export function checkEnv(env: EnvVars | undefined): void {
  for (const k of Object.keys(env ?? {}))
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(k)) throw new NoidValidationError('env', `"${k}" is no variable's name`);
}

/** What a VM was when the server last spoke of it; fields are missing on a handle that `client.vm(name)` made. */
// eslint-disable-next-line @typescript-eslint/no-empty-object-type
export interface Vm extends VmInfo {}

/** A handle to one VM. */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export class Vm {
  readonly #client: NoidClient;

  constructor(name: string, client: NoidClient, info?: VmInfo) {
    checkName(name);
    this.name = name;
    Object.assign(this, info);
    this.#client = client;
  }

  /** Runs a program with arguments (or a shell line) and gives back how it ended. */
  exec(command: string[] | string, options: VmExecOptions = {}): Promise<ExecResult> {
    const { timeout, ...rest } = options;
    return this.#client.exec(this.name, command, { ...rest, timeout: timeout === undefined ? undefined : timeout * 1000 });
  }

  /** A command whose output streams; runs after `start()`. */
  spawn(command: string[] | string, options: SpawnOptions = {}): VmCommand {
    return this.#client.spawn(this.name, command, options);
  }

  /** A shell on a terminal; runs after `start()`. */
  console(options: ConsoleOptions = {}): VmConsole {
    return this.#client.console(this.name, options);
  }

  createCheckpoint(options: CreateCheckpointOptions & { name?: string } = {}): Promise<CheckpointInfo> {
    return this.#client.createCheckpoint(this.name, options.name, options);
  }

  listCheckpoints(): Promise<CheckpointInfo[]> {
    return this.#client.listCheckpoints(this.name);
  }

  /** In place, or into a new VM. */
  restore(checkpointId: string, options: { newName?: string } = {}): Promise<Vm> {
    return this.#client.restore(this.name, checkpointId, { as: options.newName });
  }

  /** Asks the server how it is now. */
  async info(): Promise<VmInfo> {
    const { ...info } = await this.#client.getVm(this.name);
    Object.assign(this, info);
    return info;
  }

  /** One that is gone already is fine. */
  destroy(): Promise<void> {
    return this.#client.destroyVM(this.name);
  }
}

import { Cloche } from '../client.js';
import { NotFoundError } from '../errors.js';
import { Sandbox } from '../sandbox.js';
import type { Checkpoint, Isolation, ServerInfo } from '../types.js';
import { translated } from './errors.js';
import { VmCommand, VmConsole } from './streams.js';
import type {
  Capabilities,
  CheckpointInfo,
  ConsoleOptions,
  CreateCheckpointOptions,
  CreateVMOptions,
  CreateVmOptions,
  EnvVars,
  ExecRequest,
  ExecResult,
  NoidClientOptions,
  NoidExecOptions,
  SpawnOptions,
  VersionInfo,
  VmInfo,
  WhoamiResponse,
} from './types.js';
import { checkEnv, checkName, execResult, Vm, vmInfo } from './vm.js';

const MIB = 1024 * 1024;
const LOGIN_SHELL = ['/bin/sh', '-c', 'if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l'];

/**
 * Noid's client, for code that was written for it: nothing but the import changes, or not even that (an npm alias).
 *
 * Noid is documented in one shape (`createVM({ name, vcpus, memory })`, `exec(name, 'shell line')`) and its `noid-js` has another
 * (`createVm(name, { cpus, memMib })` → `vm.exec([...])`). The names differ, so one class speaks both. It speaks to Cloche's own API,
 * since Noid's has no room for what the documentation promises: stderr apart, a timeout that ends the command and keeps
 * its output, named checkpoints. Commands run as root in the VM, as they do there.
 */
export class NoidClient {
  /** Cloche's own client on the same connection: files, stats, events. */
  readonly cloche: Cloche;
  readonly baseUrl: string;
  readonly timeout: number;
  readonly #isolation: Isolation | 'auto';
  #info: Promise<ServerInfo> | undefined;

  constructor(options: NoidClientOptions = {}) {
    const env = process.env;
    const url = options.serverUrl ?? options.baseUrl ?? env.NOID_SERVER ?? env.NOID_URL;
    this.timeout = options.timeout ?? 30_000;
    this.cloche = new Cloche({
      url: url?.replace(/\/+$/, ''),
      token: options.token ?? env.NOID_TOKEN,
      socketPath: options.socketPath,
      timeout: this.timeout,
      retries: options.retries ?? 3,
      retryDelay: options.retryDelay ?? 1000,
    });
    this.baseUrl = this.cloche.transport.options.url;
    this.#isolation = options.isolation ?? 'auto';
  }

  /** Makes a VM; it is up when this resolves. */
  async createVM(options: CreateVMOptions): Promise<Vm> {
    const { name, vcpus = 1, env, network } = options;
    checkName(name);
    checkEnv(env);
    return translated(async () => {
      const usual = await this.#usual();
      const isolation = options.isolation ?? this.#isolation;
      const made = await this.cloche.sandboxes.create({
        name,
        cpus: vcpus,
        memory: (options.memory ?? usual.memMib) * MIB,
        pids: usual.pids,
        env,
        user: 'root',
        network: (network ?? usual.network) === 'open' ? 'open' : 'none',
        isolation: isolation === 'auto' ? usual.isolation : isolation,
      });
      return this.#vm(made);
    });
  }

  async listVMs(): Promise<Vm[]> {
    return translated(async () => {
      const out: Vm[] = [];
      for await (const s of this.cloche.sandboxes.list({ pageSize: 1000 })) out.push(this.#vm(s));
      return out;
    });
  }

  async getVM(name: string): Promise<Vm> {
    checkName(name);
    return translated(async () => this.#vm(await this.cloche.sandboxes.get(name)));
  }

  /** One that is gone already is fine. */
  async destroyVM(name: string): Promise<void> {
    checkName(name);
    return translated(async () => {
      try {
        await this.cloche.sandboxes.delete(name);
      } catch (e) {
        if (!(e instanceof NotFoundError)) throw e;
      }
    });
  }

  /**
   * Runs a command to its end: a text is a line for the shell, an array a program with its arguments. A timeout
   * (milliseconds) ends the whole process tree and is a result like any other, `exitCode` 124 and `timedOut` set, with
   * the output so far.
   */
  async exec(
    vmName: string,
    command: string | readonly string[] | ExecRequest,
    options: NoidExecOptions & { tty?: boolean } = {},
  ): Promise<ExecResult> {
    checkName(vmName);
    let env = options.env;
    let tty = options.tty;
    let cmd: string | readonly string[];
    if (typeof command === 'object' && 'command' in command) {
      cmd = command.command;
      tty ??= command.tty;
      env = { ...envObject(command.env), ...env };
    } else cmd = command;
    checkEnv(env);
    return translated(async () => {
      const how = {
        env,
        cwd: options.cwd,
        stdin: options.stdin,
        signal: options.signal,
        user: 'root',
        timeout: options.timeout === undefined ? undefined : options.timeout / 1000,
      };
      const sandbox = this.#sandbox(vmName);
      if (!tty) return execResult(await sandbox.exec(cmd, how));
      const terminal = await sandbox.start(cmd, { ...how, tty: { rows: 24, cols: 80 } });
      return execResult(await terminal.wait());
    });
  }

  /** Keeps the state of a VM, under a name if one is given. */
  async createCheckpoint(
    vmName: string,
    checkpointName?: string,
    options: CreateCheckpointOptions = {},
  ): Promise<CheckpointInfo> {
    checkName(vmName);
    const { label, memory = 'auto' } = options;
    return translated(async () =>
      checkpointInfo(vmName, await this.#sandbox(vmName).checkpoint(checkpointName, { label, memory })),
    );
  }

  /** Those of a VM, newest first; also when the VM is gone. */
  async listCheckpoints(vmName: string): Promise<CheckpointInfo[]> {
    checkName(vmName);
    return translated(async () => {
      const list = await orGone(
        () => this.#sandbox(vmName).checkpoints(),
        (gone) => this.#left(vmName, gone),
      );
      return list.map((c) => checkpointInfo(vmName, c));
    });
  }

  /**
   * Back to a checkpoint (by name or id): in place as often as one likes, or with `as` into a new VM. Checkpoints stay,
   * also when their VM is destroyed; it is made anew then.
   */
  async restore(vmName: string, checkpoint: string, options: { as?: string; newName?: string } = {}): Promise<Vm> {
    checkName(vmName);
    const as = options.as ?? options.newName;
    if (as !== undefined) checkName(as);
    return translated(async () =>
      this.#vm(
        await orGone(
          () => this.#sandbox(vmName).restore(checkpoint, { as }),
          async (gone) => {
            const meant = (await this.#left(vmName, gone)).find((c) => c.id === checkpoint || c.name === checkpoint);
            if (!meant) throw gone;
            return this.cloche.checkpoints.restore(meant, { as: as ?? vmName });
          },
        ),
      ),
    );
  }

  /* The checkpoints of a VM that is gone. One that lives, or never had any, was not the reason for the error. */
  async #left(vmName: string, why: unknown): Promise<Checkpoint[]> {
    const found: Checkpoint[] = [];
    for await (const c of this.cloche.checkpoints.list({ pageSize: 1000 })) if (c.sandboxName === vmName) found.push(c);
    if (found.length === 0) throw why;
    return found;
  }

  /** A handle, without asking the server. */
  vm(name: string): Vm {
    return new Vm(name, this);
  }

  createVm(name: string | { name: string; cpus?: number; mem_mib?: number }, options: CreateVmOptions = {}): Promise<Vm> {
    if (typeof name === 'object') return this.createVM({ name: name.name, vcpus: name.cpus, memory: name.mem_mib });
    const { cpus, memMib, ...rest } = options;
    return this.createVM({ name, vcpus: cpus, memory: memMib, ...rest });
  }

  getVm(name: string): Promise<Vm> {
    return this.getVM(name);
  }

  async listVms(): Promise<VmInfo[]> {
    return (await this.listVMs()).map(({ ...info }) => info);
  }

  destroyVm(name: string): Promise<void> {
    return this.destroyVM(name);
  }

  deleteVm(name: string): Promise<void> {
    return this.destroyVM(name);
  }

  /** A command whose output streams; runs after `start()`. */
  spawn(vmName: string, command: string | readonly string[], options: SpawnOptions = {}): VmCommand {
    checkName(vmName);
    checkEnv(options.env);
    const { env, rows = 24, cols = 80 } = options;
    const tty = options.tty ? { rows, cols } : undefined;
    return new VmCommand(() => this.#sandbox(vmName).start(command, { env, tty, user: 'root', stdin: !tty }));
  }

  /** A shell on a terminal; runs after `start()`. */
  console(vmName: string, options: ConsoleOptions = {}): VmConsole {
    checkName(vmName);
    checkEnv(options.env);
    const { rows, cols, env } = options;
    return new VmConsole(() =>
      this.#sandbox(vmName).pty({
        cmd: LOGIN_SHELL,
        rows,
        cols,
        env: { TERM: 'xterm', ...env },
        user: 'root',
        timeout: 0,
      }),
    );
  }

  async health(): Promise<{ status: string }> {
    return translated(() => this.cloche.health());
  }

  async version(): Promise<VersionInfo> {
    const v = await translated(() => this.cloche.version());
    return { version: v.version, api_version: v.apiVersion };
  }

  async whoami(): Promise<WhoamiResponse> {
    const w = await translated(() => this.cloche.whoami());
    return { user_id: w.userId, name: w.name };
  }

  /** What the server allows, by default. */
  async capabilities(): Promise<Capabilities> {
    const { limits } = await translated(() => this.#server());
    const { memMib } = await this.#usual();
    const number = (key: string, otherwise: number): number =>
      typeof limits?.[key] === 'number' ? (limits[key] as number) : otherwise;
    const timeouts = { exec_timeout_secs: number('execTimeoutMs', 300_000) / 1000, console_timeout_secs: 0 };
    return {
      api_version: 1,
      max_exec_output_bytes: number('outputLimit', MIB),
      ...timeouts,
      max_vm_name_length: 64,
      default_cpus: 1,
      default_mem_mib: memMib,
      timeouts,
      limits: { max_env_vars: 64, max_env_value_len: 32 * 1024 },
      defaults: { cpus: 1, mem_mib: memMib },
    };
  }

  /** Lets idle connections go. */
  close(): void {
    this.cloche.close();
  }

  #vm(s: Sandbox): Vm {
    return new Vm(s.name, this, vmInfo(s));
  }

  /* By name, without asking first: the server takes either where an id stands. */
  #sandbox(name: string): Sandbox {
    return new Sandbox(this.cloche.transport, { id: name, name });
  }

  /* Asked once, unless it failed. */
  #server(): Promise<ServerInfo> {
    this.#info ??= this.cloche.info().catch((e: unknown) => {
      this.#info = undefined;
      throw e;
    });
    return this.#info;
  }

  /* What a VM gets that asks for nothing: the server's administrator has the last word. */
  async #usual(): Promise<{ isolation: Isolation; network: 'none' | 'open'; memMib: number; pids?: number }> {
    const info = await this.#server();
    const fast = info.features?.kvm === true && info.isolation.includes('vm');
    return {
      isolation: info.noid?.isolation ?? (fast ? 'vm' : 'container'),
      network: info.noid?.network ?? (info.features?.network === true ? 'open' : 'none'),
      memMib: info.noid?.memMib ?? 2048,
      pids: info.noid?.pids,
    };
  }
}

/* What to do when the server says that there is no such VM. */
async function orGone<T>(ask: () => Promise<T>, otherwise: (why: unknown) => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (e) {
    if (!(e instanceof NotFoundError)) throw e;
    return otherwise(e);
  }
}

/* The REST API writes "K=V". */
function envObject(env: string[] | EnvVars | undefined): EnvVars {
  if (!Array.isArray(env)) return env ?? {};
  const out: EnvVars = {};
  for (const e of env) {
    const eq = e.indexOf('=');
    out[eq < 0 ? e : e.slice(0, eq)] = eq < 0 ? '' : e.slice(eq + 1);
  }
  return out;
}

function checkpointInfo(vmName: string, c: Checkpoint): CheckpointInfo {
  return {
    id: c.id,
    name: c.name ?? null,
    vm_name: vmName,
    vmName,
    label: c.label ?? null,
    created_at: c.createdAt,
    createdAt: c.createdAt,
  };
}

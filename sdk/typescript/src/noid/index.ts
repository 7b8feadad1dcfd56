/** Noid's client, for code that was written for `@noid/sdk`. */
export { NoidClient, NoidClient as default } from './client.js';
export { Vm, Vm as VM } from './vm.js';
export { VmCommand, VmConsole } from './streams.js';
export { NoidAPIError, NoidConnectionError, NoidError, NoidExecError, NoidValidationError } from './errors.js';
export type {
  Capabilities,
  CheckpointInfo,
  ConsoleOptions,
  CreateCheckpointOptions,
  CreateVMOptions,
  CreateVmOptions,
  EnvVars,
  ExecRequest,
  NoidClientOptions,
  NoidExecOptions,
  SpawnOptions,
  VersionInfo,
  VmExecOptions,
  VmInfo,
  VmState,
  WhoamiResponse,
} from './types.js';
export type { ExecResult } from './types.js';

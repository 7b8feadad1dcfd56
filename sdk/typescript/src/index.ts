/*
 * The client of Cloche. The default export is NoidClient, so that `"@noid/sdk": "npm:@cloche/sdk"` gives old code what it
 * imports; new code imports { Cloche }.
 */
export { Cloche, type ClocheOptions, type CreateTokenOptions } from './client.js';
export { Checkpoints, type CheckpointRef } from './checkpoints.js';
export { Secrets } from './secrets.js';
export { Pools, Templates } from './templates.js';
export { Sandbox } from './sandbox.js';
export { Exec } from './exec.js';
export { Files } from './files.js';
export { Ports } from './ports.js';
export {
  ClocheError,
  ConflictError,
  ConnectionError,
  DeniedError,
  ExhaustedError,
  InvalidError,
  LostError,
  NotFoundError,
  ProtocolError,
  RateLimitError,
  RefusedError,
  TimeoutError,
  UnauthorizedError,
  UnsupportedError,
} from './errors.js';
export type * from './types.js';
export type { UnpackOptions, UnpackResult } from './tar.js';
export type { ExecResult as NoidExecResult } from './noid/types.js';
export {
  NoidAPIError,
  NoidClient,
  NoidConnectionError,
  NoidError,
  NoidExecError,
  NoidValidationError,
  Vm,
  VM,
  VmCommand,
  VmConsole,
} from './noid/index.js';
export type {
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
  VmExecOptions,
  VmInfo,
  VmState,
  WhoamiResponse,
} from './noid/index.js';
export { NoidClient as default } from './noid/index.js';

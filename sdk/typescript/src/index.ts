/*
 * The client of Cloche. The default export is NoidClient, so that `"@noid/sdk": "npm:@cloche/sdk"` gives old code what it
 * imports; new code imports { Cloche }.
 */
export { Cloche, type ClocheOptions, type CreateTokenOptions } from './client.js';
export { Checkpoints, type CheckpointRef } from './checkpoints.js';
export { Images } from './images.js';
export { Secrets } from './secrets.js';
export { Pools, Templates } from './templates.js';
export { Sandbox } from './sandbox.js';
export {
  CodeResult,
  Context,
  Contexts,
  type CodeError,
  type CodeEvent,
  type CodeVerdict,
  type ContextInfo,
  type ContextOptions,
  type ExecuteOptions,
  type Execution,
  type Language,
  type RunArtifact,
  type RunCodeOptions,
  type RunOptions,
  type RunResult,
} from './contexts.js';
export { Exec } from './exec.js';
export { Files } from './files.js';
export { Ports } from './ports.js';
export { Tools, type JsonSchema, type ToolAnswer, type ToolDefinition, type ToolsOptions } from './tools.js';
export {
  ClocheError,
  ConflictError,
  ConnectionError,
  DeniedError,
  ExhaustedError,
  FileMissingError,
  FileThereError,
  FolderMissingError,
  InvalidError,
  IsAFolderError,
  LostError,
  NameTakenError,
  NotAFolderError,
  NotExecutableError,
  NotFoundError,
  PermissionError,
  ProgramMissingError,
  ProtocolError,
  QuotaError,
  RateLimitError,
  RefusedError,
  TimeoutError,
  UnauthorizedError,
  UnsupportedError,
  UserUnknownError,
} from './errors.js';
export { REASONS, type Reason } from './reasons.js';
export type * from './image_types.js';
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

import type { Reason } from './reasons.js';

/** What the server says in the body of every error. */
export interface WireError {
  code?: string;
  reason?: string;
  message?: string;
  cause?: string | null;
  remedy?: string | null;
  request_id?: string | null;
}

export interface ClocheErrorInit {
  code: string;
  reason?: Reason | null;
  status?: number;
  cause?: unknown;
  remedy?: string | null;
  requestId?: string | null;
  /** Milliseconds. */
  retryAfter?: number;
  details?: Record<string, unknown>;
}

/** The parent of everything this package throws on purpose, but for an abort: that is the signal's own reason. */
export class ClocheError extends Error {
  /** The server's word (`not_found`, `conflict`, `rate`, …), or `connection`, `timeout`, `protocol` from this side. */
  readonly code: string;
  /**
   * Why, for programs: finer than `code`; REASONS lists all. A newer server may give words that are not in it. Null when
   * there was no answer, or from an older server.
   */
  readonly reason: Reason | null;
  /** The HTTP status; 0 when there was no answer. */
  readonly status: number;
  /** Why, as far as known: the server's text, or the error below. */
  override readonly cause?: unknown;
  /** What to do about it, when the server knows. */
  readonly remedy: string | null;
  /** Names this call in the server's log and audit. */
  readonly requestId: string | null;
  /** Milliseconds until a repetition may succeed, when the server said so. */
  readonly retryAfter: number | undefined;
  /** What the server said besides: `conflicts` of a promote, say. */
  readonly details: Record<string, unknown>;

  constructor(message: string, init: ClocheErrorInit) {
    super(message);
    this.name = new.target.name;
    this.code = init.code;
    this.reason = init.reason ?? null;
    this.status = init.status ?? 0;
    if (init.cause !== undefined && init.cause !== null) this.cause = init.cause;
    this.remedy = init.remedy ?? null;
    this.requestId = init.requestId ?? null;
    this.retryAfter = init.retryAfter;
    this.details = init.details ?? {};
  }
}

/** 400: the request makes no sense. */
export class InvalidError extends ClocheError {}
/** 401: no token, or none that is good now. */
export class UnauthorizedError extends ClocheError {}
/** 403: the token lacks the scope. */
export class DeniedError extends ClocheError {}
/** 404: no such thing, or another tenant's. */
export class NotFoundError extends ClocheError {}
/** 409: the name is taken, or the state does not fit. */
export class ConflictError extends ClocheError {}
/** 422: understood, but the sandbox said no. */
export class RefusedError extends ClocheError {}
/** 429: `rate` (has `retryAfter`) or `quota`. */
export class RateLimitError extends ClocheError {}
/** 501: this host or version cannot enforce or do it. */
export class UnsupportedError extends ClocheError {}
/** 502: the sandbox ended on the way. */
export class LostError extends ClocheError {}
/** 503: the host has no room now. */
export class ExhaustedError extends ClocheError {}
/** 504, or this side waited for longer than it was told to. */
export class TimeoutError extends ClocheError {}
/** No connection, or it broke. */
export class ConnectionError extends ClocheError {}
/** The other side does not speak what was agreed, or sends more than any limit allows. */
export class ProtocolError extends ClocheError {}

/** No such file or folder in the sandbox. */
export class FileMissingError extends NotFoundError {}
/** The user in the sandbox lacks permission for the path. */
export class PermissionError extends DeniedError {}
/** The path is a folder. */
export class IsAFolderError extends RefusedError {}
/** A part of the path, or the working folder of a command, is not a folder. */
export class NotAFolderError extends RefusedError {}
/** There is already a file or folder of this name. */
export class FileThereError extends ConflictError {}
/** The command, or the interpreter in its first line, is not in the sandbox. */
export class ProgramMissingError extends RefusedError {}
/** The user may not execute the command, or may not enter its working folder. */
export class NotExecutableError extends RefusedError {}
/** The working folder of a command does not exist. */
export class FolderMissingError extends RefusedError {}
/** The sandbox has no such user or group. */
export class UserUnknownError extends RefusedError {}
/** The name is in use. */
export class NameTakenError extends ConflictError {}
/** A quota or a limit of the tenant is used up: waiting does not help. */
export class QuotaError extends RateLimitError {}

type ErrorClass = new (message: string, init: ClocheErrorInit) => ClocheError;

/* A code has one status. On a WebSocket only the code arrives, so the table is read both ways. */
const KINDS: Record<string, [number, ErrorClass]> = {
  invalid: [400, InvalidError],
  unauthorized: [401, UnauthorizedError],
  denied: [403, DeniedError],
  not_found: [404, NotFoundError],
  method: [405, ClocheError],
  conflict: [409, ConflictError],
  too_large: [413, ClocheError],
  refused: [422, RefusedError],
  rate: [429, RateLimitError],
  quota: [429, RateLimitError],
  internal: [500, ClocheError],
  unsupported: [501, UnsupportedError],
  lost: [502, LostError],
  exhausted: [503, ExhaustedError],
  timeout: [504, TimeoutError],
};

/* Reasons that have a class of their own. Each is a subclass of that of its code. */
const CLASSES: Partial<Record<string, ErrorClass>> = {
  file_missing: FileMissingError,
  permission: PermissionError,
  is_a_folder: IsAFolderError,
  not_a_folder: NotAFolderError,
  file_exists: FileThereError,
  program_missing: ProgramMissingError,
  not_executable: NotExecutableError,
  folder_permission: NotExecutableError,
  folder_missing: FolderMissingError,
  user_unknown: UserUnknownError,
  group_unknown: UserUnknownError,
  name_taken: NameTakenError,
  quota: QuotaError,
  limit: QuotaError,
};

/** Makes the typed error of an answer. `wire` may be anything: proxies answer in their own words. */
export function errorFromWire(
  wire: unknown,
  status = 0,
  more: { requestId?: string | null; retryAfter?: number; details?: Record<string, unknown> } = {},
): ClocheError {
  const w: WireError = typeof wire === 'object' && wire !== null ? (wire as WireError) : {};
  const byStatus = Object.entries(KINDS).find(([, [s]]) => s === status);
  const code = typeof w.code === 'string' ? w.code : (byStatus?.[0] ?? 'unknown');
  const kind = KINDS[code] ?? (byStatus ? byStatus[1] : undefined);
  const reason = typeof w.reason === 'string' ? (w.reason as Reason) : null;
  const base: ErrorClass = kind ? kind[1] : ClocheError;
  const finer = reason !== null && Object.hasOwn(CLASSES, reason) ? CLASSES[reason] : undefined;
  const cls = finer !== undefined && finer.prototype instanceof base ? finer : base;
  let message = typeof w.message === 'string' && w.message !== '' ? w.message : `the server answered with status ${status}`;
  if (typeof w.cause === 'string' && !message.includes(w.cause)) message += `: ${w.cause}`;
  return new cls(message, {
    code,
    reason,
    status: status || (kind ? kind[0] : 0),
    cause: typeof w.cause === 'string' ? w.cause : undefined,
    remedy: typeof w.remedy === 'string' ? w.remedy : null,
    requestId: typeof w.request_id === 'string' ? w.request_id : (more.requestId ?? null),
    retryAfter: more.retryAfter,
    details: more.details,
  });
}

/** What an aborted call throws: the reason the signal carries. */
export function abortReason(signal: AbortSignal): unknown {
  return signal.reason ?? new DOMException('This operation was aborted', 'AbortError');
}

import { ClocheError, ConnectionError, TimeoutError } from '../errors.js';

/** The parent of what a NoidClient throws. What Cloche knows beyond Noid (`code`, `remedy`, `requestId`) is there too. */
export class NoidError extends ClocheError {}

/** The server said no. */
export class NoidAPIError extends NoidError {
  readonly statusCode: number;
  readonly errorMessage: string;

  constructor(from: ClocheError) {
    super(from.message, { ...from, code: from.code, cause: from.cause });
    this.statusCode = from.status;
    this.errorMessage = from.message;
  }

  isNotFound(): boolean {
    return this.statusCode === 404;
  }

  isConflict(): boolean {
    return this.statusCode === 409;
  }

  isUnauthorized(): boolean {
    return this.statusCode === 401;
  }

  isRateLimited(): boolean {
    return this.statusCode === 429;
  }
}

/** No answer: the connection was not made, broke, or took too long. */
export class NoidConnectionError extends NoidError {}

/** Thrown by whoever wants a failed command to be an error; this package itself gives results back. */
export class NoidExecError extends NoidError {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly timedOut: boolean;
  readonly truncated: boolean;

  constructor(result: { exit_code: number | null; stdout: string; timed_out: boolean; truncated: boolean }) {
    super(result.timed_out ? 'the command ran out of time' : `the command ended with ${result.exit_code}`, { code: 'exec' });
    this.exitCode = result.exit_code;
    this.stdout = result.stdout;
    this.timedOut = result.timed_out;
    this.truncated = result.truncated;
  }
}

/** Refused on this side, before anything was sent. */
export class NoidValidationError extends NoidError {
  constructor(
    readonly field: string,
    message: string,
  ) {
    super(`${field}: ${message}`, { code: 'invalid' });
  }
}

/** Runs a call of the native API; its errors come out as Noid's. */
export async function translated<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (e) {
    throw translate(e);
  }
}

export function translate(e: unknown): unknown {
  if (!(e instanceof ClocheError) || e instanceof NoidError) return e;
  if (e instanceof ConnectionError || (e instanceof TimeoutError && e.status === 0))
    return new NoidConnectionError(e.message, { ...e, code: e.code, cause: e.cause ?? e });
  return new NoidAPIError(e);
}

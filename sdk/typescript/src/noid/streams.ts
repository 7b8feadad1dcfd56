import { EventEmitter, once } from 'node:events';
import { PassThrough, Writable } from 'node:stream';
import type { Readable } from 'node:stream';
import type { Exec } from '../exec.js';
import { NoidError, translate } from './errors.js';

/* Both kinds: an exec whose output lands in node streams. Nothing runs before `start()`. */
class Following extends EventEmitter {
  protected exec: Exec | undefined;
  protected code = -1;
  readonly stdin: Writable;
  readonly #out = new PassThrough();
  readonly #err = new PassThrough();
  #over: Promise<number> | undefined;

  constructor(private readonly open: () => Promise<Exec>) {
    super();
    this.stdin = new Writable({
      write: (piece: Buffer, _enc, done) => {
        if (!this.exec) return done(new NoidError('not started: await start() first', { code: 'invalid' }));
        this.exec.stdin.write(piece, done);
      },
      final: (done) => {
        if (!this.exec) return done();
        this.exec.stdin.end(done);
      },
    });
    this.stdin.on('error', () => undefined);
  }

  get stdout(): Readable {
    return this.#out;
  }

  get stderr(): Readable {
    return this.#err;
  }

  protected async begin(): Promise<void> {
    if (this.exec) throw new NoidError('started already', { code: 'invalid' });
    try {
      this.exec = await this.open();
    } catch (e) {
      throw translate(e);
    }
    this.#over = this.#follow(this.exec);
    this.#over.catch((e: unknown) => {
      this.#out.destroy();
      this.#err.destroy();
      if (this.listenerCount('error') > 0) this.emit('error', e);
    });
  }

  async #follow(exec: Exec): Promise<number> {
    try {
      for await (const c of exec) {
        const to = c.stream === 'stderr' ? this.#err : this.#out;
        // A reader that is slow slows the command down; one that has gone does not.
        if (!to.destroyed && !to.write(c.data)) await room(to);
      }
      this.code = (await exec.wait()).exitCode;
    } catch (e) {
      throw translate(e);
    }
    this.#out.end();
    this.#err.end();
    return this.code;
  }

  protected over(): Promise<number> {
    if (!this.#over) return Promise.reject(new NoidError('not started: await start() first', { code: 'invalid' }));
    // What nobody asked to read must not hold the command up.
    for (const s of [this.#out, this.#err]) if (s.readableFlowing === null && s.listenerCount('readable') === 0) s.resume();
    return this.#over;
  }
}

function room(to: Writable): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      to.off('drain', go).off('close', go);
      resolve();
    };
    to.on('drain', go).on('close', go);
  });
}

/** A command whose output streams. Events: `spawn`, `exit` (code), `error`. */
export class VmCommand extends Following {
  async start(): Promise<void> {
    await this.begin();
    this.emit('spawn');
    // Watches without taking output away from a reader that comes later.
    void this.watch();
  }

  private async watch(): Promise<void> {
    await once(this.stdout, 'end').catch(() => undefined);
    if (this.code >= 0) this.emit('exit', this.code);
  }

  /** Its exit code. */
  wait(): Promise<number> {
    return this.over();
  }

  /** -1 while it runs. */
  exitCode(): number {
    return this.code;
  }

  async kill(signal: string | number = 'KILL'): Promise<void> {
    try {
      await this.exec?.signal(signal);
    } catch (e) {
      throw translate(e);
    }
  }
}

/** A shell on a terminal. Events: `open`, `close`, `error`. */
export class VmConsole extends Following {
  #closed = false;

  async start(): Promise<void> {
    await this.begin();
    this.emit('open');
    const end = (): void => {
      if (this.#closed) return;
      this.#closed = true;
      this.emit('close');
    };
    this.stdout.once('end', end).once('close', end);
  }

  /** Hangs up and ends the shell. */
  close(): void {
    const exec = this.exec;
    if (!exec || exec.result) return;
    exec.kill().catch(() => undefined);
  }

  resize(cols: number, rows: number): void {
    this.exec?.resize(rows, cols).catch(() => undefined);
  }
}

/*
 * A WebSocket client (RFC 6455) on node:http, as small as this package needs: unix sockets, headers in the handshake and
 * backpressure both ways, which the platform's own client does not offer. No extensions.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { TextDecoder } from 'node:util';
import { ConnectionError, ProtocolError } from './errors.js';

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const MAX_MESSAGE = 16 * 1024 * 1024;
const CLOSE_WAIT_MS = 2000;

export const enum Op {
  Continuation = 0,
  Text = 1,
  Binary = 2,
  Close = 8,
  Ping = 9,
  Pong = 10,
}

export interface Frame {
  fin: boolean;
  op: number;
  payload: Buffer;
}

/** A frame as a client sends it: always masked. */
export function encodeFrame(op: number, payload: Uint8Array, mask: Uint8Array = randomBytes(4)): Buffer {
  const n = payload.length;
  const head = n < 126 ? 2 : n < 65536 ? 4 : 10;
  const out = Buffer.allocUnsafe(head + 4 + n);
  out[0] = 0x80 | op;
  if (head === 2) out[1] = 0x80 | n;
  else if (head === 4) {
    out[1] = 0x80 | 126;
    out.writeUInt16BE(n, 2);
  } else {
    out[1] = 0x80 | 127;
    out.writeBigUInt64BE(BigInt(n), 2);
  }
  out.set(mask, head);
  for (let i = 0; i < n; i++) out[head + 4 + i] = payload[i]! ^ mask[i & 3]!;
  return out;
}

const bad = (why: string): ProtocolError => new ProtocolError(`WebSocket: ${why}`, { code: 'protocol' });

/** Takes bytes in pieces of any size, gives back whole frames. Throws on what a server must not send. */
export class FrameParser {
  #buf: Buffer[] = [];
  #have = 0;

  constructor(private readonly limit = MAX_MESSAGE) {}

  feed(data: Buffer): Frame[] {
    const out: Frame[] = [];
    this.#buf.push(data);
    this.#have += data.length;
    for (;;) {
      const f = this.#frame();
      if (!f) return out;
      out.push(f);
    }
  }

  /* Joins pieces only when a frame's head or body lies across them. */
  #peek(n: number): Buffer | undefined {
    if (this.#have < n) return undefined;
    if (this.#buf[0]!.length < n) this.#buf = [Buffer.concat(this.#buf)];
    return this.#buf[0]!;
  }

  #frame(): Frame | undefined {
    let b = this.#peek(2);
    if (!b) return undefined;
    const op = b[0]! & 15;
    const fin = (b[0]! & 0x80) !== 0;
    if ((b[0]! & 0x70) !== 0) throw bad('reserved bits without an extension');
    if ((b[1]! & 0x80) !== 0) throw bad('a masked frame from the server');
    if (op > 2 && (op < 8 || op > 10)) throw bad(`unknown opcode ${op}`);
    let n = b[1]! & 127;
    let head = 2;
    if (op >= 8 && (n > 125 || !fin)) throw bad('a control frame that is long or in pieces');
    if (n >= 126) {
      head = n === 126 ? 4 : 10;
      b = this.#peek(head);
      if (!b) return undefined;
      const long = head === 4 ? BigInt(b.readUInt16BE(2)) : b.readBigUInt64BE(2);
      if (long > BigInt(this.limit)) throw bad(`a frame of ${long} bytes`);
      n = Number(long);
    }
    b = this.#peek(head + n);
    if (!b) return undefined;
    const payload = b.subarray(head, head + n);
    this.#buf[0] = b.subarray(head + n);
    if (this.#buf[0].length === 0) this.#buf.shift();
    this.#have -= head + n;
    return { fin, op, payload };
  }
}

export interface SocketEvents {
  message(data: string | Buffer): void;
  /** Once, last. `error` when it was not a clean close. */
  close(code: number, reason: string, error?: Error): void;
}

/** An open WebSocket. Nothing is read before `listen`. */
export class Socket {
  #events: SocketEvents | undefined;
  #parser = new FrameParser();
  #parts: Buffer[] = [];
  #partsSize = 0;
  #partsOp = 0;
  #closed = false;
  #sentClose = false;
  #gotClose: { code: number; reason: string } | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly stream: Duplex,
    private readonly head: Buffer,
  ) {}

  listen(events: SocketEvents): void {
    this.#events = events;
    this.stream.on('data', (d: Buffer) => this.#data(d));
    this.stream.on('error', (e) => this.#end(e));
    this.stream.on('end', () => this.stream.end());
    this.stream.on('close', () => this.#end());
    if (this.head.length > 0) this.#data(this.head);
  }

  pause(): void {
    this.stream.pause();
  }

  resume(): void {
    this.stream.resume();
  }

  /** Resolves when the other side takes more; rejects when it is gone. */
  send(data: string | Uint8Array): Promise<void> {
    if (this.#closed || this.#sentClose) return Promise.reject(gone());
    const frame =
      typeof data === 'string' ? encodeFrame(Op.Text, Buffer.from(data)) : encodeFrame(Op.Binary, data);
    return new Promise((resolve, reject) => {
      this.stream.write(frame, (e) => (e ? reject(gone(e)) : resolve()));
    });
  }

  /** Says goodbye and hangs up, at the latest after two seconds. */
  close(code = 1000): void {
    if (this.#closed || this.#sentClose) return;
    this.#sendClose(code);
    this.stream.resume();
  }

  /** Hangs up without a word. */
  destroy(): void {
    this.stream.destroy();
  }

  #sendClose(code: number): void {
    if (this.#sentClose) return;
    this.#sentClose = true;
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    this.stream.write(encodeFrame(Op.Close, payload), () => undefined);
    this.#timer = setTimeout(() => this.stream.destroy(), CLOSE_WAIT_MS);
    this.#timer.unref();
  }

  #data(d: Buffer): void {
    try {
      for (const f of this.#parser.feed(d)) {
        if (this.#gotClose || this.#closed) return;
        this.#frame(f);
      }
    } catch (e) {
      this.#sendClose(1002);
      this.#end(e as Error);
      this.stream.destroy();
    }
  }

  #frame(f: Frame): void {
    switch (f.op) {
      case Op.Ping:
        if (!this.#sentClose) this.stream.write(encodeFrame(Op.Pong, f.payload), () => undefined);
        return;
      case Op.Pong:
        return;
      case Op.Close:
        if (f.payload.length === 1) throw bad('a close frame of one byte');
        this.#gotClose = {
          code: f.payload.length >= 2 ? f.payload.readUInt16BE(0) : 1005,
          reason: f.payload.subarray(2).toString('utf8'),
        };
        this.#sendClose(this.#gotClose.code === 1005 ? 1000 : this.#gotClose.code);
        this.stream.end();
        return;
      case Op.Continuation:
        if (this.#partsOp === 0) throw bad('a continuation of nothing');
        break;
      default:
        if (this.#partsOp !== 0) throw bad('a message within another');
        this.#partsOp = f.op;
    }
    this.#partsSize += f.payload.length;
    if (this.#partsSize > MAX_MESSAGE) throw bad(`a message of more than ${MAX_MESSAGE} bytes`);
    this.#parts.push(f.payload);
    if (!f.fin) return;
    const whole = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts);
    const op = this.#partsOp;
    this.#parts = [];
    this.#partsSize = 0;
    this.#partsOp = 0;
    if (op === Op.Binary) return this.#events!.message(whole);
    let text: string;
    try {
      text = new TextDecoder('utf-8', { fatal: true }).decode(whole);
    } catch {
      throw bad('a text frame that is no UTF-8');
    }
    this.#events!.message(text);
  }

  #end(error?: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#timer) clearTimeout(this.#timer);
    const c = this.#gotClose;
    if (c && !error) this.#events!.close(c.code, c.reason);
    else if (this.#sentClose && !error) this.#events!.close(1000, '');
    else this.#events!.close(1006, '', error ?? gone());
  }
}

function gone(cause?: Error): ConnectionError {
  return new ConnectionError('the connection is closed', { code: 'connection', cause });
}

/** The headers of a handshake, and what the answer must carry to be one. */
export function handshake(): { headers: Record<string, string>; accepts(res: IncomingMessage): boolean } {
  const key = randomBytes(16).toString('base64');
  const accept = createHash('sha1').update(key + GUID).digest('base64');
  return {
    headers: { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': key },
    accepts: (res) =>
      res.statusCode === 101 &&
      res.headers['sec-websocket-accept'] === accept &&
      String(res.headers.upgrade).toLowerCase() === 'websocket' &&
      res.headers['sec-websocket-extensions'] === undefined,
  };
}

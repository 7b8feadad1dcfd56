import { TextDecoder } from 'node:util';
import { ProtocolError } from './errors.js';

/** One Server-Sent Event. */
export interface ServerEvent {
  event: string;
  data: string;
  id: string | undefined;
}

const MAX_EVENT = 16 * 1024 * 1024;

/**
 * Cuts a byte stream into events: fed with text, gives back the events that are complete. Lines end by LF, CRLF or CR;
 * an event that the end of the stream cuts off is dropped, as the format asks for.
 */
export class EventParser {
  #rest = '';
  #event = '';
  #data: string[] = [];
  #size = 0;
  #id: string | undefined;

  constructor(readonly limit = MAX_EVENT) {}

  feed(text: string): ServerEvent[] {
    const out: ServerEvent[] = [];
    let buf = this.#rest + text;
    let from = 0;
    for (;;) {
      const end = lineEnd(buf, from);
      if (!end) break;
      this.#line(buf.slice(from, end.at), out);
      from = end.next;
    }
    buf = buf.slice(from);
    if (buf.length + this.#size > this.limit)
      throw new ProtocolError(`an event of more than ${this.limit} characters`, { code: 'protocol' });
    this.#rest = buf;
    return out;
  }

  #line(line: string, out: ServerEvent[]): void {
    if (line === '') {
      if (this.#data.length > 0)
        out.push({ event: this.#event === '' ? 'message' : this.#event, data: this.#data.join('\n'), id: this.#id });
      this.#event = '';
      this.#data = [];
      this.#size = 0;
      return;
    }
    if (line.startsWith(':')) return; // a comment keeps the connection alive
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'event') this.#event = value;
    else if (field === 'data') {
      this.#data.push(value);
      this.#size += value.length;
    } else if (field === 'id' && !value.includes('\0')) this.#id = value;
  }
}

/* A CR at the very end may be half of a CRLF: it waits for the next piece. */
function lineEnd(s: string, from: number): { at: number; next: number } | undefined {
  for (let i = from; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c === 10) return { at: i, next: i + 1 };
    if (c === 13) {
      if (i + 1 === s.length) return undefined;
      return { at: i, next: s.charCodeAt(i + 1) === 10 ? i + 2 : i + 1 };
    }
  }
  return undefined;
}

/** The events of a response's body, one by one; leaving the loop closes the connection. */
export async function* readEvents(
  body: AsyncIterable<Uint8Array>,
  limit?: number,
): AsyncGenerator<ServerEvent, void, void> {
  const parser = new EventParser(limit);
  const decoder = new TextDecoder('utf-8');
  for await (const piece of body) yield* parser.feed(decoder.decode(piece, { stream: true }));
}

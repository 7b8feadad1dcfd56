'use strict';
// Frames between this kernel and its daemon: four bytes of length, little-endian, then that many bytes of JSON. Writes are
// synchronous, so that a cell that prints waits when nobody reads.
const { writeSync } = require('fs'); // its own: cells may replace it

const REQUEST_MAX = 64 << 20;
const sleeper = new Int32Array(new SharedArrayBuffer(4));

class Wire {
  constructor(events) {
    this.events = events;
    this.gone = false;
    this.data = [];
    this.size = 0;
  }

  send(...frames) {
    for (const frame of frames) {
      const body = Buffer.from(JSON.stringify(frame), 'utf8');
      const head = Buffer.alloc(4);
      head.writeUInt32LE(body.length);
      this.write(Buffer.concat([head, body]));
    }
  }

  write(data) {
    for (let at = 0; at < data.length && !this.gone;) {
      try {
        at += writeSync(this.events, data, at);
      } catch (e) {
        if (e.code === 'EAGAIN') Atomics.wait(sleeper, 0, 0, 2);
        else if (e.code !== 'EINTR') this.gone = true; // nobody reads events any more: the end of the requests follows
      }
    }
  }

  // Takes what has arrived, and returns the requests that are complete. Throws if the stream cannot be read on.
  requests(piece) {
    this.data.push(piece);
    this.size += piece.length;
    const found = [];
    while (this.size >= 4) {
      if (this.data[0].length < 4) this.data = [Buffer.concat(this.data)];
      const need = this.data[0].readUInt32LE(0);
      if (need > REQUEST_MAX) throw new Error(`a request has ${need} bytes, and at most ${REQUEST_MAX} are allowed`);
      if (this.size < 4 + need) break;
      const all = Buffer.concat(this.data);
      found.push(parse(all.subarray(4, 4 + need)));
      this.data = all.length > 4 + need ? [all.subarray(4 + need)] : [];
      this.size = all.length - 4 - need;
    }
    return found;
  }
}

function parse(body) {
  let request;
  try {
    request = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch (e) {
    return { problem: `the request is not JSON: ${e.message}` };
  }
  if (request === null || typeof request !== 'object' || Array.isArray(request)) {
    return { problem: 'the request is not a JSON object' };
  }
  return request;
}

module.exports = { Wire };

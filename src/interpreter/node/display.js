'use strict';
// Values as results, in the formats that they offer. A value offers formats by a method [Symbol.for('Jupyter.display')](), which
// returns {MIME type: value}; several libraries have it.
const util = require('util');
const { plainText } = require('./output.js');

const RESULTS_MAX = 1000;
const JSON_MAX = 1 << 20;
const FORMATS = Symbol.for('Jupyter.display');
const BINARY = /^(?:image\/(?!svg)|application\/pdf|audio\/|video\/)/;

class TooManyResults extends Error {}

function textOf(value) {
  // inspect() takes seconds for texts of megabytes.
  if (typeof value === 'string' && value.length > 4096 && !/['\\\x00-\x1f\x7f-\x9f\ud800-\udfff]/.test(value)) return `'${value}'`;
  try {
    return util.inspect(value, { maxStringLength: Infinity });
  } catch (e) {
    return `[${typeof value} that cannot be shown: ${e && e.message}]`;
  }
}

// Arrays and plain objects as JSON, if JSON can say what they hold.
function jsonOf(value) {
  let budget = 100000;
  const fits = (x, depth) => {
    if (--budget < 0 || depth > 50) return false;
    if (x === null || typeof x === 'string' || typeof x === 'boolean') return true;
    if (typeof x === 'number') return Number.isFinite(x);
    if (typeof x !== 'object' || util.types.isProxy(x)) return false;
    if (Array.isArray(x)) return x.every(y => fits(y, depth + 1));
    const prototype = Object.getPrototypeOf(x);
    if (prototype !== Object.prototype && prototype !== null) return false;
    return Object.entries(Object.getOwnPropertyDescriptors(x)).every(([, d]) => 'value' in d && d.enumerable && fits(d.value, depth + 1));
  };
  try {
    if (typeof value !== 'object' || value === null || !fits(value, 0)) return undefined;
    return JSON.stringify(value).length <= JSON_MAX ? value : undefined;
  } catch (e) {
    return undefined;
  }
}

async function formats(value, output) {
  const mime = {};
  if (value !== null && (typeof value === 'object' || typeof value === 'function') && !util.types.isProxy(value)) {
    try {
      if (typeof value[FORMATS] === 'function') Object.assign(mime, await value[FORMATS]());
    } catch (e) {
      output.put('stderr', `the formats of a value cannot be had: ${e && e.stack || e}\n`);
    }
  }
  const found = Object.keys(mime).length ? undefined : jsonOf(value);
  if (found !== undefined) mime['application/json'] = found;
  if (mime['text/plain'] === undefined) mime['text/plain'] = textOf(value);
  return mime;
}

class Displays {
  constructor(wire, output, limit) {
    this.wire = wire;
    this.output = output;
    this.limit = limit;
  }

  begin() {
    this.count = this.bytes = 0;
  }

  async show(value, isMain) {
    this.publish(await formats(value, this.output), isMain);
  }

  publish(mime, isMain) {
    const sent = {}, truncated = {};
    let room = this.limit;
    for (const kind of Object.keys(mime).sort((a, b) => (b === 'text/plain') - (a === 'text/plain'))) {
      let value = mime[kind], size;
      if (value === undefined || value === null && kind !== 'application/json') continue;
      if (ArrayBuffer.isView(value)) value = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString(BINARY.test(kind) ? 'base64' : 'utf8');
      if (typeof value === 'string') value = plainText(value);
      else if (!/json$/.test(kind)) value = String(value);
      size = typeof value === 'string' ? value.length : (JSON.stringify(value) || '').length;
      if (kind === 'text/plain' && size > this.limit / 10) {
        truncated[kind] = size;
        value = value.slice(0, this.limit / 10);
        size = value.length;
      }
      if (size > room) {
        truncated[kind] = size;
        continue;
      }
      sent[kind] = value;
      room -= size;
    }
    const event = { type: 'result', id: this.output.id, mime: sent, is_main: Boolean(isMain) };
    if (Object.keys(truncated).length) event.truncated = truncated;
    this.count++;
    this.bytes += this.limit - room;
    if (this.count > RESULTS_MAX || this.bytes > 4 * this.limit) {
      throw new TooManyResults(`one execution may show ${RESULTS_MAX} results with ${4 * this.limit} bytes; display fewer, or ` +
        'write them to files');
    }
    this.output.flush();
    this.wire.send(event);
  }
}
TooManyResults.prototype.name = 'TooManyResults';

// display(value), display(bundle, {raw: true}), display.html(text) and its kin: what cells call.
function forCells(displays) {
  const waiting = displays.waiting = new Set();
  function display(value, options) {
    if (options && options.raw) {
      displays.publish({ ...value }, false);
      return;
    }
    if (value === null || value === undefined || typeof value[FORMATS] !== 'function') {
      const mime = { 'text/plain': textOf(value) }, found = jsonOf(value);
      if (found !== undefined) mime['application/json'] = found;
      displays.publish(mime, false);
      return;
    }
    const shown = displays.show(value, false);
    waiting.add(shown);
    shown.then(() => waiting.delete(shown), () => {});
  }
  const kinds = { html: 'text/html', markdown: 'text/markdown', latex: 'text/latex', svg: 'image/svg+xml', png: 'image/png',
    jpeg: 'image/jpeg', json: 'application/json', text: 'text/plain', javascript: 'application/javascript' };
  for (const [name, kind] of Object.entries(kinds)) display[name] = data => displays.publish({ [kind]: data }, false);
  return display;
}

module.exports = { Displays, forCells, textOf };

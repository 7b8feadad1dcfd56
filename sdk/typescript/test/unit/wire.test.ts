import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromWire, listOf, parseObject, queryString, toWire } from '../../src/wire.js';
import { execBody, readResult } from '../../src/exec.js';
import { errorFromWire, NotFoundError, ProgramMissingError, RateLimitError, RefusedError, ClocheError, ProtocolError, UnsupportedError } from '../../src/errors.js';
import { REASONS } from '../../src/reasons.js';
import { retryAfter } from '../../src/http.js';

test('names change their spelling, what the user named does not', () => {
  const here = { ioBps: 1, env: { MY_VAR: 'a', myVar: 'b' }, metadata: { user_id: '1' }, tmpfs: [{ readOnly: true }], no: undefined };
  const wire = { io_bps: 1, env: { MY_VAR: 'a', myVar: 'b' }, metadata: { user_id: '1' }, tmpfs: [{ read_only: true }] };
  assert.deepEqual(toWire(here), wire);
  const { no: _, ...there } = here;
  assert.deepEqual(fromWire(wire), there);
});

test('a key named __proto__ changes no prototype', () => {
  const v = fromWire<Record<string, unknown>>(JSON.parse('{"__proto__":{"admin":true},"x":1}'));
  assert.equal((v as { admin?: boolean }).admin, undefined);
  assert.equal(Object.getPrototypeOf(v), Object.prototype);
});

test('queries are percent-encoded, blanks and pluses too', () => {
  assert.equal(queryString({ path: '/a b+c&d', mkdirs: true, append: undefined, 'metadata.K': 'ü' }), '?path=%2Fa%20b%2Bc%26d&mkdirs=1&metadata.K=%C3%BC');
  assert.equal(queryString({}), '');
});

test('a text is a shell line, an array a program', () => {
  assert.deepEqual(execBody('echo hi', { timeout: 3, stdin: 'x' }), { shell: 'echo hi', timeout: 3, stdin: 'x' });
  assert.deepEqual(execBody(['a', 'b'], { stdin: Buffer.from([255]), cpuTime: '2s' }), { cmd: ['a', 'b'], stdin_base64: '/w==', cpu_time: '2s' });
  assert.deepEqual(execBody(['a'], { stdin: true }), { cmd: ['a'], stdin_open: true });
  assert.deepEqual(execBody(['a'], { stdin: true, tty: { rows: 2, cols: 3 } }), { cmd: ['a'], tty: { rows: 2, cols: 3 } });
});

test('bytes of a result are bytes', () => {
  const r = readResult({ exit_code: 0, verdict: { cause: 'exited' }, stdout_base64: '/wA=', stderr_base64: '', usage: { wall_ms: 4 } });
  assert.deepEqual(r.stdoutBytes, Buffer.from([255, 0]));
  assert.equal(r.stderr, '');
  assert.equal(r.usage.wallMs, 4);
  assert.equal(r.ok, true);
  assert.equal('stdoutBase64' in r, false);
});

test('errors are typed by code, by status when there is none', () => {
  const e = errorFromWire({ code: 'not_found', message: 'no sandbox "x"', cause: 'deleted', remedy: 'make one', request_id: 'r1' }, 404);
  assert.ok(e instanceof NotFoundError);
  assert.deepEqual([e.code, e.status, e.message, e.cause, e.remedy, e.requestId, e.name], ['not_found', 404, 'no sandbox "x": deleted', 'deleted', 'make one', 'r1', 'NotFoundError']);
  assert.equal(e.reason, null);
  const finer = errorFromWire({ code: 'refused', reason: 'program_missing', message: 'm' }, 422);
  assert.ok(finer instanceof ProgramMissingError && finer instanceof RefusedError);
  assert.deepEqual([finer.reason, REASONS[finer.reason!], finer.name], ['program_missing', 422, 'ProgramMissingError']);
  // A reason of another code, or of a later version, leaves the class of the code.
  assert.equal(errorFromWire({ code: 'conflict', reason: 'program_missing' }, 409).name, 'ConflictError');
  assert.equal(errorFromWire({ code: 'conflict', reason: 'of_later' }, 409).reason, 'of_later');
  assert.ok(errorFromWire({ code: 'unsupported' }) instanceof UnsupportedError);
  assert.equal(errorFromWire({ code: 'unsupported' }).status, 501);
  assert.ok(errorFromWire(undefined, 429) instanceof RateLimitError);
  const odd = errorFromWire('<html>', 418);
  assert.ok(odd instanceof ClocheError);
  assert.deepEqual([odd.code, odd.status], ['unknown', 418]);
});

test('Retry-After is seconds or a date', () => {
  assert.equal(retryAfter('2'), 2000);
  assert.equal(retryAfter(undefined), undefined);
  assert.equal(retryAfter('soon'), undefined);
  const ms = retryAfter(new Date(Date.now() + 5000).toUTCString())!;
  assert.ok(ms > 3000 && ms <= 5000);
});

test('what is no object, or has no list where one should be, is an error of this package', () => {
  assert.deepEqual(parseObject('{"a": [1]}', 'it'), { a: [1] });
  for (const text of ['[]', '5', 'null', '"x"', '{', '', '['.repeat(100_000)]) assert.throws(() => parseObject(text, 'it'), ProtocolError);
  assert.deepEqual(listOf([1], 'a'), [1]);
  for (const value of [undefined, null, 5, {}, 'ab']) assert.throws(() => listOf(value as never, 'a'), ProtocolError);
});

// The tools in `generateText`, with the AI SDK's own pretended model.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cloche } from '@cloche/sdk';
import { sandboxTools } from '@cloche/vercel-ai';
import { generateText, stepCountIs } from 'ai';
import { MockLanguageModelV3 } from 'ai/test';

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const call = (toolName, input) => ({
  content: [{ type: 'tool-call', toolCallId: toolName, toolName, input: JSON.stringify(input) }],
  finishReason: { unified: 'tool-calls', raw: undefined },
  usage,
  warnings: [],
});
const say = (text) => ({ content: [{ type: 'text', text }], finishReason: { unified: 'stop', raw: undefined }, usage, warnings: [] });
const client = new Cloche();

test('a model writes a file, runs it and sees its mistakes', async () => {
  const sandbox = await client.sandboxes.create();
  try {
    const model = new MockLanguageModelV3({
      doGenerate: [
        call('write_file', { path: 'a.py', content: 'print(6 * 7)' }),
        call('run_command', { command: 'python3 a.py' }),
        call('read_file', { path: '/no/such' }),
        say('42'),
      ],
    });
    const done = await generateText({ model, tools: sandboxTools(sandbox), prompt: 'Compute it.', stopWhen: stepCountIs(9) });
    assert.equal(done.text, '42');
    assert.deepEqual(done.steps[1].toolResults.map((r) => r.output), ['42']);
    const failed = done.steps[2].content.find((part) => part.type === 'tool-error');
    assert.match(String(failed.error), /no\/such/);
    const schema = model.doGenerateCalls[0].tools.find((t) => t.name === 'run_command').inputSchema;
    assert.deepEqual([schema.type, schema.required, schema.additionalProperties], ['object', ['command'], false]);
  } finally {
    await sandbox.delete();
  }
});

test('aborting the generation ends the command', async () => {
  const sandbox = await client.sandboxes.create();
  try {
    const model = new MockLanguageModelV3({ doGenerate: [call('run_command', { command: 'touch begun; sleep 1000' }), say('')] });
    const abort = new AbortController();
    const done = generateText({ model, tools: sandboxTools(sandbox), prompt: '?', stopWhen: stepCountIs(9), abortSignal: abort.signal });
    const ended = assert.rejects(done);
    while (!(await sandbox.files.exists('begun'))) await new Promise((r) => setTimeout(r, 20));
    abort.abort();
    await ended;
    for (;;) {
      const running = (await sandbox.execs()).filter((x) => x.state === 'running');
      if (running.length === 0) break;
      await new Promise((r) => setTimeout(r, 20));
    }
  } finally {
    await sandbox.delete();
  }
});

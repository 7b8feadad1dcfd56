// The tools in a loop around LangChain's own pretended chat model.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cloche, NotFoundError } from '@cloche/sdk';
import { sandboxTools } from '@cloche/langchain';
import { AIMessage, HumanMessage } from '@langchain/core/messages';
import { convertToOpenAITool } from '@langchain/core/utils/function_calling';
import { FakeStreamingChatModel } from '@langchain/core/utils/testing';

const client = new Cloche();
const call = (name, args) => new AIMessage({ content: '', tool_calls: [{ type: 'tool_call', id: name, name, args }] });

test('a loop around a chat model', async () => {
  const sandbox = await client.sandboxes.create();
  try {
    const tools = sandboxTools(sandbox);
    const script = [
      call('write_file', { path: 'sum.py', content: 'print(sum(range(101)))' }),
      call('run_command', { command: 'python3 sum.py' }),
      call('read_file', { path: '/no/such' }),
      new AIMessage('It is 5050.'),
    ];
    const messages = [new HumanMessage('Sum up 1 to 100.')];
    for (const answer of script) {
      const model = new FakeStreamingChatModel({ responses: [answer], chunks: [answer] }).bindTools(tools);
      messages.push(await model.invoke(messages));
      for (const wanted of messages.at(-1).tool_calls ?? [])
        messages.push(await tools.find((t) => t.name === wanted.name).invoke(wanted));
    }
    const answers = messages.filter((m) => m.getType() === 'tool');
    assert.deepEqual(answers.map((m) => m.status ?? 'success'), ['success', 'success', 'error']);
    assert.equal(answers[1].content, '5050');
    assert.match(answers[2].content, /no\/such/);
    assert.equal(messages.at(-1).content, 'It is 5050.');
  } finally {
    await sandbox.delete();
  }
});

test('definitions are plain JSON Schema, mistakes without an id are texts, and a lost sandbox is an exception', async () => {
  const sandbox = await client.sandboxes.create();
  const tools = sandboxTools(sandbox, { only: ['run_command'] });
  assert.deepEqual(tools.map((t) => t.name), ['run_command']);
  assert.deepEqual(convertToOpenAITool(tools[0]).function.parameters.required, ['command']);
  assert.equal(await tools[0].invoke({ command: 'echo hello' }), 'hello');
  await sandbox.delete();
  await assert.rejects(tools[0].invoke({ command: 'true' }), NotFoundError);
});

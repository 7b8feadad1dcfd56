/* A LangChain tool, `python_repl`: the model's code runs in a VM, its errors go back to the model as text. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tool } from '@langchain/core/tools';
import { vmName, withNoid, world } from './samples.js';

withNoid();

class PythonRepl extends Tool {
  name = 'python_repl';
  description = 'Runs Python in an isolated VM. Input is the code; what it prints comes back.';
  readonly vm = vmName('repl');
  #ready: Promise<unknown> | undefined;

  protected async _call(code: string): Promise<string> {
    const { noid } = world;
    this.#ready ??= noid.createVM({ name: this.vm, memory: 512, network: 'isolated' });
    await this.#ready;
    const r = await noid.exec(this.vm, 'python3 -', { stdin: code, timeout: 10_000 });
    if (r.timedOut) return `${r.stdout}Error: it took too long`;
    return r.exitCode === 0 ? r.stdout : `${r.stdout}Error: ${r.stderr}`;
  }

  async close(): Promise<void> {
    await world.noid.destroyVM(this.vm);
  }
}

const tool = new PythonRepl();

test('the tool answers with what the code prints', async () => {
  assert.equal(await tool.invoke('print(sum(range(10)))'), '45\n');
});

test('files stay between calls', async () => {
  await tool.invoke('open("/tmp/notes", "w").write("remember")');
  assert.equal(await tool.invoke('print(open("/tmp/notes").read())'), 'remember\n');
});

test('an error is an answer, not an exception', async () => {
  assert.match(await tool.invoke('1/0'), /Error: [\s\S]*ZeroDivisionError/);
});

test('tool calls of a model are answered, several at once', async () => {
  const answers = await Promise.all(
    [1, 2, 3].map((n) =>
      tool.invoke({ name: 'python_repl', type: 'tool_call', id: `call_${n}`, args: { input: `print(${n} ** 2)` } }),
    ),
  );
  assert.deepEqual(answers.map((a: { tool_call_id: string; content: unknown }) => [a.tool_call_id, a.content]), [['call_1', '1\n'], ['call_2', '4\n'], ['call_3', '9\n']]);
  await tool.close();
});

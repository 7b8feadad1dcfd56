/* The SDK's tools as tools of the AI SDK: `generateText({ model, tools: sandboxTools(sandbox), … })`. */
import { Tools, type Sandbox, type ToolsOptions } from '@cloche/sdk';
import { dynamicTool, jsonSchema, type ToolSet } from 'ai';

/**
 * run_command, run_python, read_file, write_file, edit_file, list_files. A mistake of the model is a tool error, which the model
 * sees. Aborting the generation ends its commands.
 */
export function sandboxTools(sandbox: Sandbox, options: ToolsOptions = {}): ToolSet {
  const tools = new Tools(sandbox, options);
  const made = tools.definitions.map((d) => [
    d.name,
    dynamicTool({
      description: d.description,
      inputSchema: jsonSchema(d.parameters as Parameters<typeof jsonSchema>[0]),
      execute: async (input, { abortSignal }) => {
        const answer = await tools.call(d.name, input, { signal: abortSignal });
        if (answer.isError) throw new Error(answer.text);
        return answer.text;
      },
    }),
  ]);
  return Object.fromEntries(made);
}

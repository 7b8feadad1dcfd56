/* The SDK's tools as LangChain's: `model.bindTools(sandboxTools(sandbox))`. */
import { Tools, type Sandbox, type ToolsOptions } from '@cloche/sdk';
import { ToolMessage } from '@langchain/core/messages';
import { tool, type StructuredToolInterface } from '@langchain/core/tools';

/**
 * run_command, run_python, read_file, write_file, edit_file, list_files. A mistake of the model is a tool message with the
 * status `error`; a lost sandbox is an exception. Aborting the signal of a call ends its command.
 */
export function sandboxTools(sandbox: Sandbox, options: ToolsOptions = {}): StructuredToolInterface[] {
  const tools = new Tools(sandbox, options);
  return tools.definitions.map((d) =>
    tool(
      async (input: unknown, config) => {
        const answer = await tools.call(d.name, input, { signal: config.signal });
        const id: string | undefined = config.toolCall?.id;
        if (!answer.isError || id === undefined) return answer.text;
        return new ToolMessage({ content: answer.text, status: 'error', name: d.name, tool_call_id: id });
      },
      { name: d.name, description: d.description, schema: d.parameters },
    ),
  ) as StructuredToolInterface[];
}

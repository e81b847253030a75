/** Tools: declared once with a zod schema, called by name, documented from the same declaration. */
export {
  type DefinedTool,
  defineTool,
  refuse,
  type Tool,
  type ToolArguments,
  type ToolDefinition,
  ToolError,
  type ToolOutcome,
} from './define-tool.ts';
export { malformedMessage, type ToolSet, toolMessage, toolSet, toolsPage } from './tool-set.ts';

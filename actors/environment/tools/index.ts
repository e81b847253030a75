/** Tools: declared once with a zod schema, called by name, documented from the same declaration. */

// The library that parameters are declared with: an environment of one's own needs no package but this one.
export { z } from 'zod';
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

/** Serving a model: chats and completions over HTTP as OpenAI's clients speak it. */
export { Completion } from './completions.ts';
export { chatRequest, completionRequest, parseRequest } from './requests.ts';
export { type Answer, type Piece, ServedModel, type ServedModelOptions } from './served-model.ts';
export { createServer, type ModelServer, type ServerOptions } from './server.ts';

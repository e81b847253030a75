/** Language: tokenizers, chat templates, conversations as token ids, and reading what the policy wrote. */
export { Chat, type EpisodeIds } from './chat.ts';
export { ChatTemplate, type ConversationTemplate, type RenderOptions } from './chat-template.ts';
export { Conversation, episodeIds } from './conversation.ts';
export { readGenerationConfig, stopIdsOf } from './generation-config.ts';
export { type HarmonyMessage, HarmonyReader, isHarmony } from './harmony.ts';
export { HarmonyTemplate } from './harmony-render.ts';
export { downloadModel, type HubOptions, type HubProgress, isHubName } from './hub/index.ts';
export { type ModelChat, readModelChat, tokenizerFilesOf } from './model-chat.ts';
export { type WordFormat, type WordParameter, wordParser } from './parse.ts';
export { TextStream, unfinishedMarker } from './text-stream.ts';
export { Tokenizer, type TokenizerFiles } from './tokenizer.ts';
export { type ParsedTurn, parseToolCalls, readArguments, TOOL_CALL_OPEN, type ToolCallFormat, toolCallFormatOf } from './tool-calls.ts';
export { renderTranscript, type TranscriptNotes } from './transcript.ts';
export { readsSpecialTokens, type TurnDelta, type TurnFormat, type TurnReader, turnFormatOf, turnReader } from './turn-reader.ts';

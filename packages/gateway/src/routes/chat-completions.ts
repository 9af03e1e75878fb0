import type { FastifyInstance } from 'fastify';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { servePrompt } from '../serve-prompt.js';

/** `POST /v1/chat/completions`: OpenAI's, with `documents` and `warmpath` beside the messages. */
export function chatCompletionsRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post(chatApi.path, servePrompt(gateway, chatApi));
}

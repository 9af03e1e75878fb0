import type { FastifyInstance } from 'fastify';
import type { Gateway } from '../gateway.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { completionsApi } from '../intake/apis/completions-api.js';
import { messagesApi } from '../intake/apis/messages-api.js';
import { responsesApi } from '../intake/apis/responses-api.js';
import { servePrompt, serveTranslatable } from '../serve-prompt.js';

/**
 * Everything that takes a prompt, each with `documents` and `warmpath` beside its own members: OpenAI's chat
 * completions, plain completions and Responses, and Anthropic's Messages. The last two are translated for an engine
 * that does not speak them.
 */
export function promptRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.post(chatApi.path, servePrompt(gateway, chatApi));
  app.post(completionsApi.path, servePrompt(gateway, completionsApi));
  app.post(messagesApi.path, serveTranslatable(gateway, messagesApi));
  app.post(responsesApi.path, serveTranslatable(gateway, responsesApi));
}

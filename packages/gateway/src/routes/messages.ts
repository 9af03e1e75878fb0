import type { FastifyInstance } from 'fastify';
import type { Gateway } from '../gateway.js';
import { messagesApi } from '../intake/apis/messages-api.js';
import { serveTranslatable } from '../serve-prompt.js';

/** `POST /v1/messages`: Anthropic's, with `documents` and `warmpath` beside the messages. */
export function messagesRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post(messagesApi.path, serveTranslatable(gateway, messagesApi));
}

import type { FastifyInstance } from 'fastify';
import type { Gateway } from '../gateway.js';
import { completionsApi } from '../intake/apis/completions-api.js';
import { servePrompt } from '../serve-prompt.js';

/** `POST /v1/completions`: OpenAI's, with `documents` and `warmpath` beside the prompt. */
export function completionsRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post(completionsApi.path, servePrompt(gateway, completionsApi));
}

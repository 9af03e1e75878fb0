import type { FastifyInstance } from 'fastify';
import type { Gateway } from '../gateway.js';
import { responsesApi } from '../intake/apis/responses-api.js';
import { serveTranslatable } from '../serve-prompt.js';

/** `POST /v1/responses`: OpenAI's, with `documents` and `warmpath` beside the input. */
export function responsesRoute(app: FastifyInstance, gateway: Gateway): void {
  app.post(responsesApi.path, serveTranslatable(gateway, responsesApi));
}

import { WarmpathError } from '@warmpath/core';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { ServerConfig } from '../config/schema-server.js';
import { requireOperatorOf } from '../intake/admit.js';
import { captureRequest, readFields } from '../intake/own-fields.js';
import { bodyOf } from '../intake/request-body.js';
import { readObject } from '../json/json-body.js';
import type { CapturedBodies } from '../observe/captured-bodies.js';
import type { Log } from '../observe/log.js';

const WHY = 'A captured body holds what clients wrote, so it is for the operator';

export interface CaptureParts {
  readonly server: ServerConfig;
  readonly captures: CapturedBodies;
  readonly log: Log;
}

/**
 * `POST /v1/capture`: keeps the bodies of the next prompts in memory. `GET /v1/capture`: which ones. `GET
 * /v1/capture/{id}`: one of them, as `warmpath explain` reads it.
 *
 * `WARMPATH_FORBIDDEN` for everybody but the operator.
 */
export function captureRoutes(app: FastifyInstance, { server, captures, log }: CaptureParts): void {
  const answer = (reply: FastifyReply, body: object) =>
    reply.header('cache-control', 'no-store').header('x-content-type-options', 'nosniff').send(body);

  app.get('/v1/capture', (request, reply) => {
    requireOperatorOf(server, request.report.caller, WHY);
    return answer(reply, captures.state);
  });

  app.post('/v1/capture', (request, reply) => {
    requireOperatorOf(server, request.report.caller, WHY);
    const { requests } = readFields(captureRequest, readObject(bodyOf(request)), '');
    captures.begin(requests);
    log.info({ requests }, 'bodies of the next prompts are captured');
    return answer(reply, captures.state);
  });

  app.get<{ Params: { id: string } }>('/v1/capture/:id', (request, reply) => {
    requireOperatorOf(server, request.report.caller, WHY);
    const { id } = request.params;
    const found = captures.find(id);
    if (found === undefined) {
      const detail = 'No body of this request was captured. `POST /v1/capture` captures those of the next prompts.';
      throw new WarmpathError('WARMPATH_NOT_FOUND', { path: 'id', detail });
    }
    const { path, body } = found;
    return answer(reply, { object: 'captured_request', id, path, body: body.toString('utf8') });
  });
}

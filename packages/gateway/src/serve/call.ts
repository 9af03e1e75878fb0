import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ApiName, PromptApi } from '../apis/prompt-api.js';
import type { Translation } from '../translation.js';

/** One client call, and what the engine is to get of it. */
export interface Call {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  /** The API that the client speaks. */
  readonly route: ApiName;
  /** In which the body is written. */
  readonly api: PromptApi;
  /** The client's, or its translation. */
  readonly body: Buffer;
  readonly translation?: Translation;
}

/** The bytes that came. */
export function bodyOf({ body }: FastifyRequest): Buffer {
  return (body as Buffer | undefined) ?? Buffer.alloc(0);
}

/** A compressed body is the engine's to read. */
export function isReadable({ headers }: FastifyRequest): boolean {
  const encoding = headers['content-encoding'];
  return encoding === undefined || encoding === 'identity';
}

import type { Warning } from '@warmpath/core';
import type { ResponseBody } from '../answer/response-body.js';
import { errorShapeOf } from '../intake/apis/error-shape.js';
import type { ApiName } from '../intake/apis/prompt-api.js';
import { readObject } from '../intake/json-body.js';
import { messagesToChat } from './messages-to-chat.js';
import { messagesWriter } from './messages-writer.js';
import { RequestSource } from './request-source.js';
import { responsesToChat } from './responses-to-chat.js';
import { responsesWriter } from './responses-writer.js';
import { TranslatedBody } from './translated-body.js';

/** The APIs that can be served by an engine that speaks chat completions only. */
export type TranslatedApi = Extract<ApiName, 'messages' | 'responses'>;

/** A request in the words of chat completions, and the way back. */
export interface Translation {
  readonly body: Buffer;
  /** What was left out. */
  readonly leftOut: readonly Warning[];
  answer(requestId: string): ResponseBody;
}

/**
 * Translates a request. `documents` and `warmpath` come along as they are. Errors: `WARMPATH_INVALID_JSON`,
 * `WARMPATH_INVALID_REQUEST` and `WARMPATH_NOT_TRANSLATABLE`, with paths into `body`. O(body).
 */
export function translate(body: Buffer, api: TranslatedApi, limitBytes: number): Translation {
  const request = readObject(body);
  const source = new RequestSource(body.toString('utf8'), request);
  const isMessages = api === 'messages';
  const chat = isMessages ? messagesToChat(source) : responsesToChat(source);
  const streamed = request['stream'] === true;
  const errors = errorShapeOf(`/v1/${api}`);
  return {
    body: Buffer.from(chat.body),
    leftOut: chat.leftOut,
    answer: (requestId) =>
      new TranslatedBody(isMessages ? messagesWriter() : responsesWriter(request), {
        streamed,
        errors,
        requestId,
        limitBytes,
      }),
  };
}

import { hash } from 'node:crypto';
import { type ChatMessage, type MessagesByPlace, messageChain } from '@warmpath/core';
import { isObject } from './apis/content-texts.js';
import type { PromptApi } from './apis/prompt-api.js';
import { saidMessages } from './said-messages.js';

/** What is in every message of the model, in any of the APIs. */
const OF_THE_MODEL = '"assistant"';

/** The messages of a body as bytes, with their hash chain. */
export interface LinkedMessages extends MessagesByPlace {
  /** Link `i` stands for the messages up to `i` and for what the API puts before them, byte for byte. */
  readonly links: readonly string[];
  /** Links that an answer may follow: only there may an earlier request have ended that was answered. */
  readonly answeredLinks: readonly string[];
}

/**
 * Reads a body as far as the bytes tell, without parsing it: the hash chain is over the bytes that the client wrote, so a client
 * that writes a message otherwise than before is not recognised, and none is ever taken for another. SHA-256 of every message, because
 * it is native: three times as fast as hashing in JavaScript. `undefined` where no messages are to be found.
 */
export function linkedMessages(body: Buffer, { said }: PromptApi): LinkedMessages | undefined {
  const found = said && saidMessages(body, said);
  if (found === undefined || found.messages.length === 0) return undefined;
  const { opening, messages } = found;
  const [, ...links] = messageChain([opening === undefined ? '' : digest(opening), ...messages.map(digest)]);
  return {
    links,
    length: messages.length,
    at: (place) => read(messages[place]),
    get answeredLinks() {
      return links.filter((_, place) => messages[place + 1]?.includes(OF_THE_MODEL) ?? false);
    },
  };
}

function digest(bytes: Buffer): string {
  return hash('sha256', bytes);
}

/** One message, parsed; what is none is no answer either. */
function read(bytes: Buffer | undefined): ChatMessage | undefined {
  try {
    const value: unknown = bytes && JSON.parse(bytes.toString('utf8'));
    return isObject(value) ? (value as ChatMessage) : undefined;
  } catch {
    return undefined;
  }
}

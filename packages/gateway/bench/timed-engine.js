// An engine of chat completions with a real prefix cache and a model of time in place of computation: so many requests
// side by side, others wait in order of arrival; each prompt takes a time for what is not cached, then streams its
// tokens. Blocks of 16 words, least recently used first to go.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';

const BLOCK = 16;

class PrefixCache {
  #capacity;
  /** Names of blocks, the least recently used first. A name says all that stands before it, too. */
  #blocks = new Map();

  constructor(tokens) {
    this.#capacity = Math.floor(tokens / BLOCK);
  }

  /** Tokens of the prompt's beginning that are there, but for its last token. */
  match(names, tokens) {
    let matched = 0;
    while (matched < names.length && this.#blocks.has(names[matched])) matched++;
    return Math.min(matched * BLOCK, tokens - 1);
  }

  /** A parent is used after its children, and so goes after them. */
  use(names) {
    for (const name of names.toReversed()) {
      this.#blocks.delete(name);
      this.#blocks.set(name, true);
    }
    for (const name of this.#blocks.keys()) {
      if (this.#blocks.size <= this.#capacity) break;
      this.#blocks.delete(name);
    }
  }
}

function blocksOf(words) {
  const names = [];
  let before = '';
  for (let end = BLOCK; end <= words.length; end += BLOCK) {
    before = createHash('sha1')
      .update(before)
      .update(words.slice(end - BLOCK, end).join(' '))
      .digest('base64');
    names.push(before);
  }
  return names;
}

const chunk = (delta, more = {}) => `data: ${JSON.stringify({ choices: [{ index: 0, delta }], ...more })}\n\n`;

/** Starts it. `newTokenMs`: of a prompt's token that is not cached. `stepMs`: of a token of an answer. */
export async function startTimedEngine({ running, cacheTokens, newTokenMs, stepMs }) {
  const cache = new PrefixCache(cacheTokens);
  const waiting = [];
  let busy = 0;
  const next = () => {
    while (busy < running && waiting.length > 0) {
      busy++;
      waiting.shift()();
    }
  };
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const serve = async (request, response) => {
    if (request.method === 'GET') {
      response.end('{"data":[]}');
      return;
    }
    const parts = [];
    for await (const part of request) parts.push(part);
    const { messages, max_tokens: maxTokens } = JSON.parse(Buffer.concat(parts).toString());
    const words = messages
      .map(({ role, content }) => `${role} ${content}`)
      .join(' ')
      .split(/\s+/);
    const names = blocksOf(words);
    await new Promise((resolve) => {
      waiting.push(resolve);
      next();
    });
    const cached = cache.match(names, words.length);
    await sleep(newTokenMs * (words.length - cached));
    cache.use(names);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (let token = 0; token < maxTokens; token++) {
      response.write(chunk({ content: `word${token} ` }));
      await sleep(stepMs);
    }
    const usage = {
      prompt_tokens: words.length,
      completion_tokens: maxTokens,
      prompt_tokens_details: { cached_tokens: cached },
    };
    response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
    busy--;
    next();
  };
  const server = createServer((request, response) => void serve(request, response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    async stop() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

// What the chat templates of a folder make of conversations: a cell fails where the template refuses them, or where a
// message is not in the prompt. `node bench/templates.js FOLDER [--peer]`, after a build, for instance with
// `models/templates` of llama.cpp, whose source the npm package node-llama-cpp carries. With `--peer`, the prompts are
// compared with those of a llama-server.
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ChatTemplate } from '../dist/chat/chat-template.js';
import { readConversation } from '../dist/http/chat-request.js';
import { llamaServer, startLlamaServer } from './llama-server.js';

const [folder, flag] = process.argv.slice(2);
if (folder === undefined) throw new Error('Usage: node bench/templates.js FOLDER [--peer]');
const MODEL = fileURLToPath(new URL('../models/warmpath-tiny.gguf', import.meta.url));
const PORT = 18_499;
const server = flag === '--peer' ? llamaServer() : undefined;

/** What a llama-server with a template makes of a request; the reason where it refuses. */
async function renderedByPeer(url, body) {
  const response = await fetch(`${url}/apply-template`, { method: 'POST', body: JSON.stringify(body) });
  const { prompt, error } = await response.json();
  return prompt ?? `refused: ${error.message}`;
}

let prompt = '';
/** A vocabulary without tokens, which keeps the text. */
const vocabulary = {
  specialTexts: /(?!)/g,
  bosText: '<|bos|>',
  eosText: '<|im_end|>',
  leadingBos: undefined,
  checkLength() {},
  checkSpecialTexts() {},
  pieceBytes: () => 1,
  tokenize(stretches) {
    prompt = stretches.map(({ text }) => text).join('');
    return Promise.resolve(stretches.map(() => []));
  },
};

const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = [{ type: 'function', function: { name: 'FIND', description: 'Finds a city.', parameters } }];
const user = { role: 'user', content: 'USER' };
const answer = { role: 'assistant', content: 'ANSWER' };
const later = { role: 'user', content: 'LATER' };
const id = 'call_1234567890';
const made = { id, type: 'function', function: { name: 'FIND', arguments: '{"city":"CITY"}' } };
const call = { role: 'assistant', content: null, tool_calls: [made] };
const result = { role: 'tool', tool_call_id: id, content: 'RESULT' };
const system = (role, content = 'SYSTEM') => ({ role, content });
const parts = ['ONE', 'TWO'].map((text) => ({ type: 'text', text }));

const cells = {
  plain: { messages: [user], shown: ['USER'] },
  system: { messages: [system('system'), user], shown: ['SYSTEM', 'USER'] },
  developer: { messages: [system('developer'), user], shown: ['SYSTEM', 'USER'] },
  'system later': {
    messages: [system('system'), user, answer, system('system', 'SECOND'), later],
    shown: ['SYSTEM', 'USER', 'ANSWER', 'SECOND', 'LATER'],
  },
  'two users': { messages: [user, later], shown: ['USER', 'LATER'] },
  parts: { messages: [{ role: 'user', content: parts }], shown: ['ONE\nTWO'] },
  tools: { messages: [user], tools, shown: ['FIND', 'USER'] },
  result: { messages: [user, call, result], tools, shown: ['USER', 'CITY', 'RESULT'] },
  'reasoning off': { messages: [user], variables: { enable_thinking: false }, shown: ['USER'] },
  reasoning: { messages: [user, { ...answer, reasoning_content: 'WHY' }, later], shown: ['USER', 'ANSWER', 'LATER'] },
  'answer last': { messages: [user, answer], shown: ['USER', 'ANSWER'] },
};

let failed = 0;
let different = 0;
/** Without the BOS, which is written or added to the tokens. */
const withoutBos = (text) => text.replace(/^<\|bos\|>/, '');
const names = readdirSync(folder).filter((name) => name.endsWith('.jinja'));
for (const name of names) {
  const template = new ChatTemplate({ source: readFileSync(join(folder, name), 'utf8') }, vocabulary);
  const peer =
    server === undefined
      ? undefined
      : startLlamaServer(server, {
          model: MODEL,
          port: PORT,
          flags: ['--jinja', '--chat-template-file', join(folder, name)],
        });
  const url = await peer?.url;
  for (const [cell, { messages, shown, variables, tools: told }] of Object.entries(cells)) {
    try {
      const read = readConversation({ messages, chat_template_kwargs: variables });
      const options = { ...read, tools: told };
      const { answerBegins } = await template.tokenize(read.messages, read.opensAnswer, options);
      const missing = shown.find((text) => !prompt.includes(text));
      if (url !== undefined) {
        const theirs = await renderedByPeer(url, { messages, tools: told, chat_template_kwargs: variables });
        if (withoutBos(theirs) !== withoutBos(prompt)) {
          different++;
          console.log(`${name}, ${cell}: ours ${JSON.stringify(prompt)}\n  llama-server's ${JSON.stringify(theirs)}`);
        }
      }
      if (missing !== undefined) throw new Error(`${missing} is missing`);
      if (variables !== undefined && answerBegins === 'reasoning') throw new Error('reasoning is open');
    } catch (error) {
      failed++;
      console.log(`${name}, ${cell}: ${error.message}`);
    }
  }
  if (peer !== undefined) {
    peer.child.kill('SIGKILL');
    await once(peer.child, 'exit');
  }
}
const count = names.length * Object.keys(cells).length;
console.log(`${failed} of ${count} cells failed`);
if (server !== undefined) console.log(`${different} of ${count} cells differ from llama-server's`);

import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LAYOUT_NAMES } from '@warmpath/core/internal';
import { spawnEngine } from '@warmpath/engine';
import { describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { decodeHead, PREFIX_BYTES, stateOffset } from '../../engine/src/store/stored-state.js';
import { chat, closing, DOCUMENTS, gatewayAt, send, stand } from './harness.js';

const CHAT = '/v1/chat/completions';
const COMPLETIONS = '/v1/completions';

interface Message {
  readonly role: string;
  readonly content: string | readonly { readonly type: string; readonly text: string }[];
}

const textOf = ({ content }: Message): string =>
  typeof content === 'string' ? content : content.map(({ text }) => text).join('');

describe('an engine that is told where documents end', () => {
  it.each(LAYOUT_NAMES)('gets each as a text part of its own, and the same text, in the layout %s', async (layout) => {
    const arrange = { layout, policy: 'retrieval' } as const;
    const messages = async (dialect: 'embedded' | 'generic'): Promise<readonly Message[]> => {
      const { engine, gateway } = await stand(undefined, { arrange, upstream: { dialect } });
      await send(gateway.url + CHAT, chat());
      return (JSON.parse(engine.last.body) as { messages: readonly Message[] }).messages;
    };
    const [whole, cut] = [await messages('generic'), await messages('embedded')];
    expect(cut.map(textOf)).toEqual(whole.map(textOf));
    const parts = cut.flatMap(({ content }) => (typeof content === 'string' ? [] : content.map(({ text }) => text)));
    const documents = parts.filter((text) => /^<document id="[a-z]+"[\s\S]*<\/document>\n$/.test(text));
    expect(documents).toHaveLength(DOCUMENTS.length);
  });

  it('keeps the parts that a client has sent', async () => {
    const { engine, gateway } = await stand(undefined, { upstream: { dialect: 'embedded' } });
    const image = { type: 'image_url', image_url: { url: 'data:,' } };
    const messages = [{ role: 'user', content: [{ type: 'text', text: 'What is it?' }, image] }];
    await send(gateway.url + CHAT, { messages, documents: DOCUMENTS.slice(0, 1) });
    const [{ content }] = (JSON.parse(engine.last.body) as { messages: [{ content: object[] }] }).messages;
    expect(content).toEqual([{ type: 'text', text: expect.stringMatching(/^<document/) }, ...messages[0]!.content]);
  });

  it('gets the places in the prompt of a completion', async () => {
    const { engine, gateway } = await stand(undefined, { upstream: { dialect: 'embedded' } });
    await send(gateway.url + COMPLETIONS, { prompt: 'Which one?', documents: DOCUMENTS });
    const { prompt, segments } = JSON.parse(engine.last.body) as { prompt: string; segments: number[] };
    expect(segments).toHaveLength(DOCUMENTS.length);
    for (const [index, end] of segments.entries()) {
      expect(prompt.slice(segments[index - 1] ?? 0, end)).toMatch(/^<document id="[a-z]+"[\s\S]*<\/document>\n$/);
    }
  });

  it('is not told unless that is asked for', async () => {
    const { engine, gateway } = await stand();
    await send(gateway.url + COMPLETIONS, { prompt: 'Which one?', documents: DOCUMENTS });
    expect(JSON.parse(engine.last.body)).not.toHaveProperty('segments');
  });
});

describe('the embedded engine behind the gateway', () => {
  it.runIf(isFull)('keeps the system prompt and each document as a node of its own', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-nodes-'));
    const options = { port: 0, threads: 1, contextTokens: 2048 };
    // When it ends, it writes every node into a file that says which tokens it holds.
    const engine = await spawnEngine({ ...options, hostTier: 2 ** 26, diskTier: folder });
    const gateway = closing(
      await gatewayAt(engine.url, { upstream: { dialect: 'embedded' }, arrange: { hints: false } }),
    );
    const fields = { model: engine.model.name, max_tokens: 2, temperature: 0 };
    expect((await send(gateway.url + CHAT, chat(DOCUMENTS, fields))).status).toBe(200);
    const completion = { prompt: 'Which one?', documents: DOCUMENTS.toReversed(), ...fields };
    expect((await send(gateway.url + COMPLETIONS, completion)).status).toBe(200);
    await engine.stop();

    const names = (await readdir(folder)).filter((name) => name.endsWith('.kv'));
    const heads = await Promise.all(
      names.map(async (name) => {
        const bytes = await readFile(join(folder, name));
        const prefix = bytes.subarray(0, PREFIX_BYTES);
        return decodeHead(prefix, bytes.subarray(PREFIX_BYTES, stateOffset(prefix)))!;
      }),
    );
    const reader = await spawnEngine(options);
    const nodes = await Promise.all(
      heads.map(async ({ tokens, from }) => {
        const reply = await send(`${reader.url}/detokenize`, { tokens: tokens.slice(from) });
        return (JSON.parse(reply.text) as { prompt: string }).prompt;
      }),
    );
    await reader.stop();
    await rm(folder, { recursive: true });
    // Once behind the chat's system prompt, once at the start of the completion: not the same tokens to the engine.
    // The template's opening of the user's message belongs to the first document, and a line break joins parts.
    for (const { id } of DOCUMENTS) {
      const own = nodes.filter((text) => text.includes(`<document id="${id}"`) && /<\/document>\n{1,2}$/.test(text));
      expect(own).toHaveLength(2);
      expect(own.every((text) => text.split('<document').length === 2)).toBe(true);
    }
    expect(nodes.filter((text) => text.includes('Answer from the documents.'))).toHaveLength(1);
    expect(nodes.filter((text) => text.includes('Answer from the documents.'))[0]).not.toContain('<document');
  });
});

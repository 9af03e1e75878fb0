import { ContextualCompressionRetriever } from '@langchain/classic/retrievers/contextual_compression';
import { Document } from '@langchain/core/documents';
import { AIMessage } from '@langchain/core/messages';
import { ChatPromptTemplate } from '@langchain/core/prompts';
import { RunnablePassthrough, RunnableSequence } from '@langchain/core/runnables';
import { fakeModel } from '@langchain/core/testing';
import { LocalWarmpath, Warmpath } from '@warmpath/client';
import { describe, expect, it } from 'vitest';
import { type ArrangeOptions, formatDocuments, WarmpathCompressor } from '../src/index.js';
import { LetterRetriever, labelsIn, passage } from './stand.js';

function retrieverOver(options: ArrangeOptions = {}, arranger = new LocalWarmpath()) {
  const compressor = new WarmpathCompressor(arranger, options);
  const retriever = new ContextualCompressionRetriever({
    baseCompressor: compressor,
    baseRetriever: new LetterRetriever(),
  });
  const find = async (letters: string) => (await retriever.invoke(letters)).map(({ id }) => id).join('');
  return { arranger, compressor, retriever, find };
}

describe('WarmpathCompressor in a ContextualCompressionRetriever', () => {
  it('continues what was served; documents keep their fields', async () => {
    const { find, retriever } = retrieverOver();
    expect(await find('abc')).toBe('abc');
    expect(await find('bda')).toBe('abd');
    const [first] = await retriever.invoke('ca');
    expect(first).toBeInstanceOf(Document);
    expect(first).toMatchObject({ id: 'a', pageContent: passage('a').pageContent });
    expect(first!.metadata).toEqual({ source: 'a.md', warmpath: { label: 'a', rank: 1 } });
  });

  it('writes the same text for a document wherever it stands, and the hint behind the last', async () => {
    const { retriever } = retrieverOver();
    const first = formatDocuments(await retriever.invoke('ab'));
    const second = formatDocuments(await retriever.invoke('ba'));
    expect(second.startsWith(first)).toBe(true);
    expect(second.slice(first.length)).toMatch(/\[b\] > \[a\]\.\n$/);
    expect(labelsIn(formatDocuments([passage('x'), passage('y')]))).toBe('xy');
  });

  it('keeps to the switches, the preamble and the ids that it is given', async () => {
    expect(await retrieverOver({ switches: { policy: 'sorted' } }).find('ba')).toBe('ab');
    const { arranger, find } = retrieverOver({ preamble: 'Be brief.' });
    await find('ab');
    expect(await retrieverOver({ preamble: 'Be long.' }, arranger).find('ba')).toBe('ba');
    expect(await retrieverOver({ preamble: 'Be brief.' }, arranger).find('ba')).toBe('ab');
    const { retriever } = retrieverOver({ idOf: ({ id }) => `${id}!` });
    const [document] = await retriever.invoke('a');
    expect(document!.metadata['warmpath'].label).toMatch(/^d\w{8}$/);
  });

  it('gives documents back as they were when there is no order to be had', async () => {
    const errors: unknown[] = [];
    const unreachable = new WarmpathCompressor(new Warmpath({ baseURL: 'http://127.0.0.1:1' }), {
      onError: (error) => errors.push((error as { code: string }).code),
    });
    const documents = [passage('b'), new Document({ pageContent: 'x'.repeat(1_000_001) })];
    expect(await unreachable.compressDocuments([passage('b')])).toEqual([passage('b')]);
    const { compressor } = retrieverOver({ onError: (error) => errors.push((error as { code: string }).code) });
    expect(await compressor.compressDocuments(documents)).toEqual(documents);
    expect(await compressor.compressDocuments([])).toEqual([]);
    expect(errors).toEqual(['WARMPATH_GATEWAY_UNREACHABLE', 'WARMPATH_DOCUMENT_TOO_LARGE']);
  });
});

describe('WarmpathFeedback in a chain', () => {
  const usage = (total: number, cached: number) => ({
    usage_metadata: {
      input_tokens: total,
      output_tokens: 1,
      total_tokens: total + 1,
      input_token_details: { cache_read: cached },
    },
  });
  const prompt = ChatPromptTemplate.fromMessages([
    ['system', 'Be brief.'],
    ['human', '{context}What was found?'],
  ]);

  function chainOver(cached: number | 'fails', total = 400) {
    const { arranger, compressor, retriever } = retrieverOver({ preamble: 'Be brief.' });
    const model = fakeModel();
    if (cached === 'fails') model.alwaysThrow(new Error('The engine is gone.'));
    else for (let i = 0; i < 8; i++) model.respond(new AIMessage({ content: 'Much.', ...usage(total, cached) }));
    const chain = RunnableSequence.from([
      RunnablePassthrough.assign({
        context: (letters: { q: string }) => retriever.pipe(formatDocuments).invoke(letters.q),
      }),
      prompt,
      model,
    ]);
    const ask = (q: string) => chain.invoke({ q }, { callbacks: [compressor.feedback] });
    return { arranger, ask, model };
  }

  it('believes what the engine reports', async () => {
    const cold = chainOver(0);
    for (let i = 0; i < 6; i++) await cold.ask('ab');
    expect(cold.arranger.history.state).toBe('degraded');
    const warm = chainOver(390);
    for (let i = 0; i < 6; i++) await warm.ask('ab');
    expect(warm.arranger.history.state).toBe('history');
    // No prompt has 0 tokens: a stream of Anthropic's form that began with counts of 0.
    const silent = chainOver(0, 0);
    for (let i = 0; i < 6; i++) await silent.ask('ab');
    expect(silent.arranger.history.state).toBe('history');
  });

  it('takes back what failed', async () => {
    const { arranger, ask } = chainOver('fails');
    await expect(ask('ab')).rejects.toThrow('gone');
    expect(arranger.history.tree.nodes).toBe(0);
  });

  it('tells apart chains that run at once', async () => {
    const { arranger, ask, model } = chainOver(390);
    await Promise.all(['ab', 'cd', 'ef', 'ba', 'dc'].map(ask));
    expect(model.callCount).toBe(5);
    expect(arranger.history.state).toBe('history');
    expect(arranger.history.requests).toBe(5);
  });
});

import { type RunningGateway, startGateway } from '@warmpath/gateway';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LocalWarmpath, Warmpath } from '../src/index.js';
import { arrangerCases } from './arranger.cases.js';

let gateway: RunningGateway;
let tenants = 0;

beforeAll(async () => {
  // Orders need no engine; a token of its own gives each client a history of its own.
  gateway = await startGateway({
    server: { port: 0 },
    upstream: { url: 'http://127.0.0.1:1' },
    log: { level: 'silent' },
  });
});

afterAll(() => gateway.close());

const remote = () => new Warmpath({ baseURL: gateway.url, apiKey: `key-${tenants++}` });

arrangerCases('the client of a gateway', async () => remote());
arrangerCases('the local one', async () => new LocalWarmpath());

it('both write the same text', async () => {
  const local = new LocalWarmpath();
  const far = remote();
  const documents = [
    { id: 'a', title: 'A & B', content: 'One <document> \n\n' },
    { content: 'Without an id.' },
    { id: 'an id that is no label', content: 'Three.' },
  ];
  for (const asked of [documents, documents.toReversed()]) {
    const { completed: _, failed: __, predictedCachedTokens, ...here } = await local.arrange({ documents: asked });
    const there = await far.arrange({ documents: asked });
    expect(there).toMatchObject(here);
    // The gateway knows that engines reuse whole blocks.
    expect(there.predictedCachedTokens).toBe(predictedCachedTokens - (predictedCachedTokens % 16));
  }
});

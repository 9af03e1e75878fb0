import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Block, blocksOf, isApart, PAGES } from '../docs-blocks.js';
import { Snippets } from '../snippets.js';
import { type StartedGateway, startGatewayAndEngine } from '../started-gateway.js';

const blocks = blocksOf(PAGES)
  .filter((block) => isApart(block))
  .map((block) => [`${block.page}:${block.line}`, block] as const);

describe('code in the docs that imports frameworks which are installed apart', () => {
  const snippets = new Snippets('test/frameworks');
  let gateway: StartedGateway;

  beforeAll(async () => {
    gateway = await startGatewayAndEngine();
  });

  afterAll(async () => {
    await gateway.stop();
    await snippets.remove();
  });

  it('is found', () => expect(blocks.length).toBeGreaterThan(1));

  it.each(blocks)('%s runs', async (_, block: Block) => {
    await expect(snippets.run(block, gateway.url)).resolves.toBeUndefined();
  });

  it('has types that a strict compiler accepts', async () => {
    expect(await snippets.typeErrors(blocks.map(([, block]) => block))).toBe('');
  });
});

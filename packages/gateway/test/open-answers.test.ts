import { expect, it } from 'vitest';
import { heldHeapBytes } from '../../../test/held-bytes.js';
import { isFull } from '../../../test/suite.js';
import { startGateway } from '../src/start-gateway.js';
import { FakeEngine, startStream } from './fake-engine.js';
import { closing, openRequest } from './harness.js';

const OPEN = 8;
const WORDS = 'The tower was built in those years by people of the town. ';

/** A prompt of about a megabyte whose documents stand in tags, others in each. */
function prompt(number: number): Buffer {
  const documents = Array.from({ length: 40 }, (_, i) => {
    const content = `Passage ${i} of prompt ${number}. ${WORDS.repeat(450)}`;
    return `<document id="d${number}-${i}">\n${content}\n</document>\n`;
  });
  const content = `<warmpath-documents>\n${documents.join('')}</warmpath-documents>\nWhen?`;
  return Buffer.from(JSON.stringify({ model: 'm', stream: true, messages: [{ role: 'user', content }] }));
}

it.runIf(isFull).each([1, 2])(
  'an answer under way keeps nothing that was read of its prompt: engines %d',
  async (count) => {
    const engines = await Promise.all(
      Array.from({ length: count }, async () => {
        const engine: FakeEngine = closing(
          await FakeEngine.start((response) => {
            engine.received.length = 0;
            startStream(response).write('data: {"choices":[{"delta":{"content":"In"}}]}\n\n');
          }),
        );
        return engine;
      }),
    );
    const gateway = closing(
      await startGateway({
        server: { port: 0 },
        log: { level: 'silent' },
        // What is learned of prompts stays within a bound of its own.
        recognise: 'off',
        engines: engines.map(({ url }, i) => ({ name: `engine-${i}`, url })),
      }),
    );
    const open: { destroy(): unknown }[] = [];
    let before = 0;
    // The first half runs code for the first time, which is compiled then.
    for (let number = 0; number < 2 * OPEN; number++) {
      if (number === OPEN) before = await heldHeapBytes();
      const request = openRequest(`${gateway.url}/v1/chat/completions`, prompt(number));
      request.on('error', () => {});
      open.push(request);
      await new Promise((resolve) => request.on('response', (response) => response.once('data', resolve)));
    }
    const held = (await heldHeapBytes()) - before;
    for (const request of open) request.destroy();
    expect(held).toBeLessThan((OPEN * prompt(0).length) / 3);
  },
);

import { describe, expect, it } from 'vitest';
import { describeNotice, type RecognitionNotice } from '../src/index.js';
import { send, stand } from './harness.js';

const PATH = '/v1/chat/completions';
const passage = (name: string) =>
  `The ${name} was built of oak in the year of the flood, and is repaired every spring.`;
const PASSAGES = ['mill', 'pier', 'lamp'].map(passage);
const chat = (content: string) => ({ model: 'm', messages: [{ role: 'user', content }] });
const tagged = PASSAGES.map((text, i) => `<document id="d${i}">${text}</document>`).join('\n');
const stuffed = (before: string) => `${before}\n\n${PASSAGES.join('\n\n')}\n\nQuestion: How old?`;

/** A gateway whose clock stands still until it is told to go on, and what it tells of prompts. */
async function telling(config: object = {}) {
  const notices: RecognitionNotice[] = [];
  let heard = (): void => {};
  let now = 0;
  const { engine, gateway } = await stand(undefined, config, {
    onUnrecognised: (notice) => {
      notices.push(notice);
      heard();
    },
    now: () => now,
  });
  /** Resolves behind the look at this prompt: whoever is told of the next one was told of this before. */
  const ask = async (content: string, laterMs = 100_000) => {
    now += laterMs;
    await send(gateway.url + PATH, chat(content));
  };
  const until = async (count: number) => {
    while (notices.length < count) {
      await new Promise<void>((resolve) => {
        heard = resolve;
      });
    }
  };
  return { engine, notices, ask, until };
}

describe('prompts whose documents stay as they are', () => {
  it('are told of once for each shape, with what to set and not a word of theirs', async () => {
    const { engine, notices, ask, until } = await telling();
    await ask(`${tagged}\nHow old?`);
    await until(1);
    for (const question of ['And now?', 'Why?']) await ask(`${tagged}\n${question}`);
    await ask(stuffed('Answer from the following context:'));
    await until(2);
    await ask(stuffed('Answer from these documents:'));
    await until(3);
    expect(notices).toEqual([
      { api: 'chat', place: 'messages[0].content', documents: 3, reason: 'off', format: 'tags' },
      { api: 'chat', place: 'messages[0].content', documents: 3, reason: 'ambiguous', format: undefined },
      { api: 'chat', place: 'messages[0].content', documents: 3, reason: 'ambiguous', format: undefined },
    ]);
    const told = notices.map(describeNotice);
    expect(told[0]).toContain('`recognise.mode: conservative`');
    expect(told[1]).toContain('`warmpath explain`');
    expect(told.join()).not.toMatch(/oak|context/);
    // What is looked at goes out as it came.
    expect(engine.last.body).toBe(JSON.stringify(chat(stuffed('Answer from these documents:'))));
  });

  it('are looked at now and then, and less often where there is nothing new', async () => {
    const { notices, ask, until } = await telling();
    await ask('Nothing here.');
    // A second later is too soon: after a look that told nothing, two go by.
    await ask(`${tagged}\nHow old?`, 1_000);
    await ask(stuffed('Answer from the following context:'), 1_001);
    await until(1);
    expect(notices).toMatchObject([{ reason: 'ambiguous' }]);
  });

  it('are none where documents were found, or nobody wants to hear', async () => {
    const { notices, ask, until } = await telling({ recognise: { mode: 'conservative' } });
    await ask(`${tagged}\nHow old?`);
    await ask(stuffed('Answer from the following context:'));
    await until(1);
    expect(notices).toMatchObject([{ reason: 'ambiguous' }]);
  });
});

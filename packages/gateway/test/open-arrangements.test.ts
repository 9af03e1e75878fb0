import { arrange, observe, prepareRequest } from '@warmpath/core';
import { expect, test } from 'vitest';
import { heldBytes } from '../../../test/held-bytes.js';
import { isFull } from '../../../test/suite.js';
import { dialectOf } from '../src/dialects/dialects.js';
import { OpenArrangements, withoutTexts } from '../src/memory/open-arrangements.js';
import { ServedHistories } from '../src/memory/served-histories.js';

const ENGINE = {
  number: 0,
  name: 'engine',
  url: 'http://engine',
  dialect: dialectOf('generic'),
  kvResidency: undefined,
};

test.runIf(isFull)('keeps no history alive that had to go', async () => {
  const histories = new ServedHistories(1_000_000);
  const arrangements = new OpenArrangements(4_000_000);
  const open = (model: string): string => {
    const state = histories.of(ENGINE, 't', model);
    const arrangement = arrange(
      prepareRequest({ documents: [{ id: 'a', content: `Some text of ${model}.` }] }),
      state.history,
      0,
    );
    const served = withoutTexts(arrangement);
    observe({ kind: 'dispatched', arrangement: served, now: 0 }, state.history);
    return arrangements.open({ arrangement: served, state });
  };
  const before = await heldBytes();
  const ids: string[] = [];
  for (let number = 0; number < 1_000; number++) ids.push(open(`model ${number}`));
  expect(arrangements.size).toBe(1_000);
  expect((await heldBytes()) - before).toBeLessThan(4 * (histories.bytes + arrangements.bytes));
  // What is known no more is no error: the answer to the client says so.
  expect(arrangements.take(ids[0]!, 't')).toBeUndefined();
  const state = histories.of(ENGINE, 't', 'model 999');
  expect(arrangements.take(ids[999]!, 't')?.state).toBe(state);
  expect(arrangements.size).toBe(998);
});

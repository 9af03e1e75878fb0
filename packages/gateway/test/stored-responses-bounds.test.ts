import { expect, it } from 'vitest';
import { BodyView } from '../src/json/json-body.js';
import { StoredResponses } from '../src/memory/stored-responses.js';

it('responses are kept within a time and within bytes', () => {
  let now = 0;
  const responses = new StoredResponses({ maxBytes: 20_000, maxContinued: 9_000, maxAgeMs: 1_000, now: () => now });
  const owner = { tenant: 't', user: undefined };
  const store = (id: string, fields: object = {}) => {
    const request = responses.continued(new BodyView(Buffer.from(JSON.stringify({ input: 'Q', ...fields }))), owner);
    request.store(JSON.stringify({ id, output: [{ text: 'x'.repeat(4_000) }] }));
    return request;
  };
  for (let count = 0; count < 100; count++) store(`resp_${count}`);
  expect(responses.bytes).toBeLessThanOrEqual(20_000);
  expect(responses.find('resp_0', owner)).toBeUndefined();
  expect(responses.find('resp_99', owner)).toMatchObject({ id: 'resp_99' });
  expect(store('resp_a', { previous_response_id: 'resp_99' }).body.toString()).toContain('"input":[{"role":"user"');
  now = 1_001;
  expect(responses.find('resp_99', owner)).toBeUndefined();
  const late = store('resp_b', { previous_response_id: 'resp_99' });
  expect([late.stored.id, late.body.toString()]).toEqual([undefined, '{"input":"Q","previous_response_id":"resp_99"}']);
  expect(responses.find('resp_b', owner)).toBeUndefined();
});

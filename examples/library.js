// Order and prompt without a gateway: the second request has the same documents in another order.
import { arrange, chatPreamble, observe, prepareRequest, renderChat, ServedHistory } from '@warmpath/core';

const history = new ServedHistory(); // one per engine replica and tenant
const style = { template: 'xml', layout: 'question' };
const clock = { id: 'clock', content: 'The clock was made by Ada.' };
const tower = { id: 'tower', content: 'The tower is 40 m high.' };

for (const documents of [
  [clock, tower],
  [tower, clock],
]) {
  const messages = [{ role: 'user', content: 'Who made the clock?' }];
  const preamble = chatPreamble(messages, 'my-model', style);
  const arrangement = arrange({ ...prepareRequest({ documents }), preamble }, history, performance.now());
  const [message] = renderChat(messages, arrangement, style); // send this to the engine
  observe({ kind: 'dispatched', arrangement, now: performance.now() }, history);
  process.stdout.write(`${message.content}\n\n`);
}

// Prints:
// <document id="clock">
// The clock was made by Ada.
// </document>
// <document id="tower">
// The tower is 40 m high.
// </document>
// Who made the clock?
//
// <document id="clock">
// The clock was made by Ada.
// </document>
// <document id="tower">
// The tower is 40 m high.
// </document>
// In order of relevance: [tower] > [clock].
// Who made the clock?

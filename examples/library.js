// Order and prompt without a gateway: the second request has the same documents in another order.
import { Warmpath } from '@warmpath/core';

const order = new Warmpath(); // one per engine replica and tenant
const clock = { id: 'clock', content: 'The clock was made by Ada.' };
const tower = { id: 'tower', content: 'The tower is 40 m high.' };

for (const documents of [
  [clock, tower],
  [tower, clock],
]) {
  const { messages } = order.arrange({ documents, messages: [{ role: 'user', content: 'Who made the clock?' }] });
  process.stdout.write(`${messages[0].content}\n\n`); // send `messages` to the engine
  order.report(); // with the usage of its answer
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

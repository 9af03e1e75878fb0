// A named conversation: the second question finds the same passage, which is referred to and not sent again.
import { Warmpath } from '@warmpath/client';

const warmpath = new Warmpath({ baseURL: process.env.WARMPATH_URL ?? 'http://localhost:8080' });
const velka = { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' };
const orsin = { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' };
const session = `example-${Date.now()}`;
const messages = [];

for (const [question, documents] of [
  ['What is the weight of Velka?', [velka]],
  ['What is the weight of Orsin?', [velka, orsin]],
]) {
  messages.push({ role: 'user', content: question });
  const answer = await warmpath.chat({ model: 'warmpath-tiny', messages, documents, warmpath: { session } });
  messages.push({ role: 'assistant', content: answer.text });
  const { promptTokens, cachedTokens } = answer.usage;
  process.stdout.write(`${answer.gateway.conversation}: ${answer.text.trim()}, ${cachedTokens} of ${promptTokens}\n`);
}

// Prints:
// new: 42 kg, … of …
// known: 17 kg, … of …

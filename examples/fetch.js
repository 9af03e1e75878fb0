// Documents beside the messages, with nothing but `fetch`. The second request brings the same documents in another
// order, and finds nearly all of its prompt in the engine's cache.
const url = process.env.WARMPATH_URL ?? 'http://localhost:8080';
const documents = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
  { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
];

for (const retrieved of [documents, documents.toReversed()]) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'warmpath-tiny',
      messages: [{ role: 'user', content: 'What is the weight of Velka?' }],
      documents: retrieved,
    }),
  });
  if (!response.ok) throw new Error(await response.text());
  const { choices, usage } = await response.json();
  const { cached_tokens: cached } = usage.prompt_tokens_details;
  process.stdout.write(`${choices[0].message.content.trim()}, ${cached} of ${usage.prompt_tokens} tokens cached\n`);
}

// Prints:
// 42 kg, … of 108 tokens cached
// …kg, … of … tokens cached

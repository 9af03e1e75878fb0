// What holding an answer to a grammar costs a token, by the size of the vocabulary: asking about the drawn token alone,
// and about the whole vocabulary. Answers with random logits, which hardly ever follow a grammar by themselves, so that
// nearly every token needs the whole vocabulary: the worst case. Also the time to read a vocabulary when its model is
// loaded, and when the first grammar is opened.
// `node bench/grammar-mask.js [--vocabularies 6144,50000,150000] [--tokens 60]`
import { parseArgs } from 'node:util';
import { sampleWithGrammar } from '../dist/loop/sampler.js';
import { llamaBindings } from '../dist/native/bindings.js';
import { NativeModel } from '../dist/native/model.js';
import { Vocabulary } from '../dist/native/vocabulary.js';
import { writeGrammar } from '../dist/structured/gbnf.js';
import { readJsonSchema } from '../dist/structured/json-schema.js';
import { seeded } from './draw.js';
import { modelPath } from './random-model/dist/model-path.js';

const { values } = parseArgs({
  options: {
    vocabularies: { type: 'string', default: '6144,50000,150000' },
    tokens: { type: 'string', default: '60' },
  },
});
const SCHEMAS = {
  'any JSON object': { type: 'object' },
  'texts of a record': {
    type: 'object',
    properties: {
      title: { type: 'string' },
      body: { type: 'string' },
      tags: { type: 'array', items: { type: 'string' } },
    },
    required: ['title', 'body', 'tags'],
  },
  'words of a list': { type: 'array', items: { enum: ['alpha', 'beta', 'gamma', 'delta'] }, minItems: 100 },
};
const SAMPLING = { temperature: 1, topP: 1, presencePenalty: 0, frequencyPenalty: 0, repetitionPenalty: 1 };

const median = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1] ?? 0;
const timed = (work) => {
  const startMs = performance.now();
  const result = work();
  return { result, ms: performance.now() - startMs };
};

const rows = [];
for (const size of values.vocabularies.split(',').map(Number)) {
  // Sixteen numbers a token at least: the smallest model of that vocabulary.
  const millions = Math.ceil((size * 64) / 1e6) + 1;
  const model = await NativeModel.load(llamaBindings(), await modelPath(`random:${millions}m~${size}`));
  const pointer = llamaBindings().getVocab(model.pointer);
  const reading = timed(() => new Vocabulary(llamaBindings(), pointer)).ms;
  const { grammars } = model.vocabulary;
  for (const [name, schema] of Object.entries(SCHEMAS)) {
    const grammar = writeGrammar(readJsonSchema(schema, 's').node, 's');
    const opening = timed(() => grammars.open(grammar));
    const open = opening.result;
    const next = seeded(7);
    const times = { one: [], whole: [], choice: [] };
    for (let token = 0; token < Number(values.tokens); token++) {
      const logits = Float32Array.from({ length: size }, () => 4 * next());
      times.one.push(timed(() => open.allows([Math.floor(next() * size)])).ms);
      times.whole.push(timed(() => open.allowed()).ms);
      const choice = timed(() => sampleWithGrammar(logits, SAMPLING, open, next));
      times.choice.push(choice.ms);
      open.accept(choice.result);
      if (model.vocabulary.endsGeneration(choice.result)) {
        break;
      }
    }
    open.free();
    rows.push({
      vocabulary: size,
      answer: name,
      'read, ms': reading.toFixed(1),
      'first grammar, ms': opening.ms.toFixed(1),
      'one token, ms': median(times.one).toFixed(3),
      'all, ms': median(times.whole).toFixed(2),
      'all at most, ms': Math.max(...times.whole).toFixed(2),
      'a choice, ms': median(times.choice).toFixed(2),
      'at most, ms': Math.max(...times.choice).toFixed(2),
    });
  }
  await model.free();
}
console.table(rows);

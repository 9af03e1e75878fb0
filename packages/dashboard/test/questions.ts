import type { SimulatedRequest } from './simulated-traffic.js';

/** Draws of one seed (mulberry32). */
function drawing(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const PLACES = ['harbour', 'mill', 'archive', 'market', 'bridge', 'tower', 'garden', 'quarry', 'station', 'library'];
const FACTS = ['opening hours', 'repairs', 'history', 'staff', 'prices', 'deliveries', 'rules', 'visitors'];
const SYSTEM =
  'You answer questions of visitors about the town of Velmora from the documents that come with them, in one sentence, and name the document. ';

export interface Passage {
  readonly id: string;
  readonly title: string;
  readonly content: string;
}

const PASSAGES: readonly (readonly Passage[])[] = PLACES.map((place) =>
  FACTS.map((fact, i) => ({
    id: `${place}-${fact.replace(' ', '-')}`,
    title: `${place}: ${fact}`,
    content: `What visitors ask about the ${fact} of the ${place} of Velmora stands here. `.repeat(6 + ((i * 5) % 9)),
  })),
);

interface Tenant {
  readonly key: string;
  readonly model: string;
  /** Writes documents and question into one message; without it, documents stand beside the messages. */
  readonly write?: (passages: readonly Passage[], question: string) => string;
}

/** Requests of an assistant for visitors over some time: topics of unequal weight, documents in order of relevance. */
export function visitorQuestions(settings: {
  readonly seed: number;
  readonly fromMs: number;
  readonly toMs: number;
  readonly perSecond: (atMs: number) => number;
  readonly tenants: readonly Tenant[];
}): SimulatedRequest[] {
  const draw = drawing(settings.seed);
  const requests: SimulatedRequest[] = [];
  for (let atMs = settings.fromMs; ; ) {
    atMs += (-Math.log(1 - draw()) / settings.perSecond(atMs)) * 1_000;
    if (atMs > settings.toMs) return requests;
    const topic = PASSAGES[Math.floor(PASSAGES.length * draw() ** 2)]!;
    const ranked = topic.map((passage) => ({ passage, rank: draw() })).toSorted((a, b) => a.rank - b.rank);
    const documents = ranked.slice(0, 4 + Math.floor(draw() * 4)).map(({ passage }) => passage);
    const { key, model, write } = settings.tenants[Math.floor(settings.tenants.length * draw() ** 1.6)]!;
    const chance = draw();
    const dated = chance < 0.04 ? `It is 2026-11-23T0${Math.floor(draw() * 9)}:15:0${Math.floor(draw() * 9)}Z. ` : '';
    const question = `What do I have to know before I go there, as visitor ${Math.floor(draw() * 1e6)}?`;
    requests.push({
      atMs,
      headers: { authorization: `Bearer ${key}` },
      ...(chance > 0.99 && { status: 503 }),
      body: {
        model,
        stream: true,
        messages: [
          { role: 'system', content: dated + SYSTEM },
          { role: 'user', content: write === undefined ? question : write(documents, question) },
        ],
        ...(write === undefined && { documents }),
        ...(chance > 0.5 && chance < 0.56 && { warmpath: { session: `visitor-${Math.floor(chance * 1e4)}` } }),
      },
    });
  }
}

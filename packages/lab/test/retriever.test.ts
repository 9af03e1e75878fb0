import { describe, expect, it } from 'vitest';
import { Retriever } from '../src/index.js';

describe('Retriever', () => {
  const passages = [
    { id: 'a', title: 'Hooks', content: 'The onSend hook changes the payload.' },
    { id: 'b', title: 'Logging', content: 'The logger writes lines.' },
    { id: 'c', title: 'Payload', content: 'A payload is sent.' },
  ];

  it('finds by words of title and text, best first, and no more than asked for', () => {
    const retriever = new Retriever(passages);
    expect(retriever.search('How do I change the payload in the onSend hook?', 5).map(({ id }) => id)).toEqual([
      'a',
      'c',
    ]);
    expect(retriever.search('payload', 1)).toHaveLength(1);
  });

  it('finds nothing by words that every question has', () => {
    expect(new Retriever(passages).search('How do I do the what?', 5)).toEqual([]);
  });
});

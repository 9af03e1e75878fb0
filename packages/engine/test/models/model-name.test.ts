import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  hubFilePath,
  hubFileUrl,
  hubReferenceText,
  parseHubReference,
  splitParts,
} from '../../src/models/model-name.js';

describe('the name of a file on the hub', () => {
  it('is read with and without a revision and folders', () => {
    expect(parseHubReference('org/repo/model.gguf')).toStrictEqual({
      organisation: 'org',
      repository: 'repo',
      revision: 'main',
      segments: ['model.gguf'],
    });
    expect(parseHubReference('My.Org/repo-1@v1.0/q8/Model-Q8_0.GGUF')).toStrictEqual({
      organisation: 'My.Org',
      repository: 'repo-1',
      revision: 'v1.0',
      segments: ['q8', 'Model-Q8_0.GGUF'],
    });
  });

  it.each([
    '',
    'org',
    'org/repo',
    'org/repo/',
    'org/repo/model.bin',
    'org/repo/.gguf/..',
    '/repo/model.gguf',
    'org//model.gguf',
    '../repo/model.gguf',
    'org/../model.gguf',
    'org/repo/../../model.gguf',
    'org/repo/./model.gguf',
    'org/repo//model.gguf',
    'org/repo/a\\b.gguf',
    'org/repo/a\u0000.gguf',
    'org/repo/a?.gguf',
    'org/repo@/model.gguf',
    'org/repo@../model.gguf',
    'org/repo@a%2F..%2Fb/model.gguf',
    'org/repo@a b/model.gguf',
    'or g/repo/model.gguf',
    `org/repo/${'a/'.repeat(20)}model.gguf`,
    `org/repo/${'a'.repeat(300)}.gguf`,
  ])('is refused: %j', (text) => {
    expect(() => parseHubReference(text)).toThrow(
      expect.objectContaining({ code: 'WARMPATH_MODEL_SPEC', path: `hf:${text}` }),
    );
  });

  it('stands for all parts of a split model, whichever is named', () => {
    const parts = ['Q4/model-00001-of-00003.gguf', 'Q4/model-00002-of-00003.gguf', 'Q4/model-00003-of-00003.gguf'];
    for (const part of parts) expect(splitParts(part)).toEqual(parts);
    for (const whole of ['model.gguf', 'model-00001-of-00000.gguf']) expect(splitParts(whole)).toEqual([whole]);
    expect(splitParts('model-00001-of-01200.gguf')).toHaveLength(1_200);
  });

  it('whatever it is, never leads out of the cache folder or to another host', () => {
    const nasty = fc.array(
      fc.constantFrom('.', '..', '/', '\\', '@', '%2F', '%', ':', '?', '#', 'a', 'b', '.gguf', '\u0000'),
      {
        maxLength: 5,
      },
    );
    let taken = 0;
    fc.assert(
      fc.property(nasty, nasty, nasty, (first, second, third) => {
        const text = `a${first.join('')}/b${second.join('')}/c${third.join('')}.gguf`;
        let reference: ReturnType<typeof parseHubReference>;
        try {
          reference = parseHubReference(text);
        } catch (error) {
          expect(error).toMatchObject({ code: 'WARMPATH_MODEL_SPEC' });
          return;
        }
        taken++;
        const root = join('/cache', 'hub');
        expect(hubFilePath(reference, '/cache').startsWith(`${root}/`)).toBe(true);
        const url = hubFileUrl(reference, new URL('https://hub.example/base'));
        expect(url.origin).toBe('https://hub.example');
        expect(url.pathname.startsWith('/base/a')).toBe(true);
        expect([url.search, url.hash]).toStrictEqual(['', '']);
        expect(parseHubReference(hubReferenceText(reference).slice('hf:'.length))).toStrictEqual(reference);
      }),
      { seed: 5, numRuns: 3000 },
    );
    expect(taken).toBeGreaterThan(50);
  });
});

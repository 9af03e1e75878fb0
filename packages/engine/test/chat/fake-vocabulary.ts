import type { TextStretch, Vocabulary } from '../../src/native/vocabulary.js';
import { specialTextPattern } from '../../src/native/vocabulary.js';

/** A vocabulary whose tokens are characters, for tests of what a template makes of a conversation. */
export class FakeVocabulary {
  readonly specialTexts = specialTextPattern(['<|im_end|>', '<|im_start|>']);
  readonly bosText = '<s>';
  readonly eosText = '</s>';
  /** The last text that was tokenised. */
  text = '';
  stretches: readonly TextStretch[] = [];

  checkLength(): void {}

  checkSpecialTexts(): void {}

  pieceBytes(): number {
    return 1;
  }

  tokenize(stretches: readonly TextStretch[]): Promise<number[][]> {
    this.stretches = stretches;
    this.text = stretches.map(({ text }) => text).join('');
    return Promise.resolve(stretches.map(({ text }) => [...Buffer.from(text)]));
  }

  get asVocabulary(): Vocabulary {
    return this as unknown as Vocabulary;
  }
}

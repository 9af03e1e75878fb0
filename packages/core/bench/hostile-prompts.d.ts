import type { PromptText, RecogniseOptions } from '../src/index.js';

/** How a text stands in its prompt; nothing stands around it where nothing is said. */
export interface HostileSetting {
  readonly role?: PromptText['role'];
  readonly kind?: 'elements';
  readonly before?: string;
  readonly after?: string;
}

/** Name, unit, and setting of each text. */
export type HostileText = readonly [name: string, unit: string, setting?: HostileSetting];
export declare const HOSTILE: readonly HostileText[];
/** The unit, repeated up to so many characters, as a prompt. */
export declare function hostilePrompt(
  hostile: HostileText,
  characters: number,
): readonly [readonly PromptText[], RecogniseOptions];

import { APPLICATION_PROMPTS } from './applications.js';
import { COUNTED_PROMPTS } from './counted.js';
import { FRAMEWORK_NEGATIVES, FRAMEWORK_PROMPTS } from './frameworks.js';
import { NEGATIVE_PROMPTS } from './negatives.js';
import type { PromptCase } from './prompt.js';
import { SEARCH_PROMPTS } from './search-tools.js';
import { STRUCTURED_PROMPTS } from './structured.js';
import { TAG_PROMPTS } from './tags.js';

/** All prompts: those with documents, and those without. */
export const PROMPTS: readonly PromptCase[] = [
  ...TAG_PROMPTS,
  ...COUNTED_PROMPTS,
  ...STRUCTURED_PROMPTS,
  ...FRAMEWORK_PROMPTS,
  ...APPLICATION_PROMPTS,
  ...SEARCH_PROMPTS,
  ...NEGATIVE_PROMPTS,
  ...FRAMEWORK_NEGATIVES,
];

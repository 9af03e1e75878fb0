import type { LayoutName } from '@warmpath/core';
import type { PromptApi } from '../apis/prompt-api.js';
import { PromptView } from '../apis/prompt-view.js';
import { BodyView } from '../json/body-view.js';
import { applyEdits } from '../json/json-scanner.js';

/**
 * What would make a request more than the prefill of a prompt, or is none of the engine's business: members to leave
 * out.
 */
const NO_MORE_THAN_PREFILL: ReadonlySet<string> = new Set([
  'documents',
  'warmpath',
  'stream',
  'stream_options',
  'background',
  'n',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'min_tokens',
]);

const EMPTY_QUESTION = '{"role":"user","content":""}';

/**
 * The body that prefills what stands before a question: the messages up to there, a user's message that has just begun,
 * and the least answer that every engine gives. O(body), native.
 */
export function prefillBody(body: BodyView, api: PromptApi, layout: LayoutName): BodyView {
  const { field, least } = api.answerLimit;
  const prompt = PromptView.of(body, api);
  const left = new Set(NO_MORE_THAN_PREFILL);
  left.delete(field);
  const edits = [...body.without(left), body.with(field, String(least))];
  if (prompt === undefined) edits.push(body.with('prompt', '""'));
  else {
    const span = body.value(prompt.members.messages)!;
    edits.push({ ...span, pieces: ['[', ...beforeQuestion(prompt, layout), EMPTY_QUESTION, ']'] });
  }
  return new BodyView(applyEdits(body.bytes, edits));
}

/** JSON of the messages before the last question; up to the system prompt, where documents stand behind that. */
function beforeQuestion(prompt: PromptView, layout: LayoutName): readonly (Buffer | string)[] {
  const { elements, body } = prompt;
  const roles = elements.map((_, place) => prompt.roleAt(place));
  const system = roles.findIndex((role) => role === 'system' || role === 'developer');
  const question = roles.lastIndexOf('user');
  const end = layout === 'system' ? system + 1 : question < 0 ? elements.length : question;
  return end === 0 ? [] : [body.bytes.subarray(elements[0]!.start, elements[end - 1]!.end), ','];
}

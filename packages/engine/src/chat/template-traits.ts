import type { JinjaTemplate } from './jinja.js';

/** What a chat template can show of a conversation, found out by rendering small ones. */
export interface TemplateTraits {
  readonly systemMessages: 'anywhere' | 'first' | 'nowhere';
  readonly hasDeveloperRole: boolean;
  /** Whether it refuses two messages of the same role in a row. */
  readonly alternatesRoles: boolean;
  readonly wantsParts: boolean;
  readonly describesTools: boolean;
  readonly showsToolResults: boolean;
  /** How it wants the arguments of calls; `undefined` when it shows no calls. */
  readonly callArguments: 'object' | 'text' | undefined;
  /** Whether ids of calls must have nine letters and digits, as Mistral's. */
  readonly wantsShortIds: boolean;
  /** Whether it writes channels, as that of gpt-oss, which reads earlier reasoning as `thinking` without content. */
  readonly isHarmony: boolean;
}

/** The variables that every rendering has. */
export const NO_TOKENS = { bos_token: '', eos_token: '', add_generation_prompt: true, enable_thinking: true };

const USER = { role: 'user', content: 'probe-user' };
const ANSWER = { role: 'assistant', content: 'probe-answer' };
const LATER = { role: 'user', content: 'probe-later' };
const SYSTEM = { role: 'system', content: 'probe-system' };
const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'probe-tool',
      description: 'probe-description',
      parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'] },
    },
  },
];

export function templateTraits(template: JinjaTemplate, source: string): TemplateTraits {
  /** Whether a conversation can be rendered, and what must be seen of it is, in that order. */
  const shows = (messages: readonly object[], expected: readonly (string | RegExp)[], tools?: object[]): boolean => {
    try {
      // Some templates write in capitals.
      const text = template.render({ ...NO_TOKENS, messages, ...(tools !== undefined && { tools }) }).toLowerCase();
      let from = 0;
      return expected.every((each) => {
        const place = typeof each === 'string' ? text.indexOf(each, from) : from + text.slice(from).search(each);
        const isThere = place >= from;
        from = Math.max(from, place);
        return isThere;
      });
    } catch {
      return false;
    }
  };
  const parts = (message: { role: string; content: string }): object => ({
    ...message,
    content: [{ type: 'text', text: message.content }],
  });
  const wantsParts = !shows([USER], ['probe-user']) && shows([parts(USER)], ['probe-user']);
  const calling = (args: unknown, id = 'call12345'): object[] => [
    USER,
    {
      role: 'assistant',
      content: '',
      tool_calls: [{ id, type: 'function', function: { name: 'probe-tool', arguments: args } }],
    },
  ];
  const result = (id = 'call12345'): object => ({
    role: 'tool',
    content: 'probe-result',
    name: 'probe-tool',
    tool_call_id: id,
  });
  const showsCall = (args: unknown, expected: string | RegExp): boolean =>
    shows([...calling(args), result()], [expected], TOOLS) || shows([...calling(args), result()], [expected]);
  const firstSystem = shows([SYSTEM, USER], ['probe-system', 'probe-user']);
  const secondSystem = { ...SYSTEM, content: 'probe-second' };
  const showsResults = (id?: string): boolean =>
    shows([...calling({ place: 'hay' }, id), result(id)], ['probe-result']) ||
    shows([...calling('{"place": "hay"}', id), result(id)], ['probe-result']);
  return {
    systemMessages: !firstSystem
      ? 'nowhere'
      : shows(
            [SYSTEM, USER, ANSWER, secondSystem, LATER],
            ['probe-system', 'probe-user', 'probe-second', 'probe-later'],
          )
        ? 'anywhere'
        : 'first',
    hasDeveloperRole:
      /['"]developer['"]/.test(source) &&
      shows([{ ...SYSTEM, role: 'developer' }, USER], ['probe-system', 'probe-user']),
    alternatesRoles: shows([USER], ['probe-user']) && !shows([USER, LATER], ['probe-user', 'probe-later']),
    wantsParts,
    describesTools: shows([USER], ['probe-tool'], TOOLS),
    showsToolResults: showsResults() || showsResults('call_123456789'),
    callArguments: showsCall({ place: 'hay' }, /place.{1,40}hay/s)
      ? 'object'
      : showsCall('{"place": "hay"}', 'hay')
        ? 'text'
        : showsCall({ place: 'hay' }, 'hay')
          ? 'object'
          : undefined,
    wantsShortIds: showsResults() && !showsResults('call_123456789'),
    isHarmony: source.includes('<|channel|>'),
  };
}

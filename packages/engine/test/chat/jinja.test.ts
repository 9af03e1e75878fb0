import { describe, expect, it } from 'vitest';
import { JinjaTemplate } from '../../src/chat/jinja.js';

const DAY = new Date('2024-07-06T00:00:00Z');

describe('a Jinja template', () => {
  it.each([
    [
      "{{ strftime_now('%d %b %Y, %B %-d %y %A %a %F %H:%M:%S %I %p %j') }}",
      '06 Jul 2024, July 6 24 Saturday Sat 2024-07-06 00:00:00 12 AM %j',
    ],
    ['{% for x in missing %}{{ x }}{% endfor %}.', '.'],
    ['{% for x in missing if x %}{{ x }}{% endfor %}.', '.'],
    ['{% for x in list if x > 1 %}{{ x }}{% endfor %}', '23'],
    ['{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }};{% endfor %}', '12;34;'],
    ["{{ missing | length }}{{ missing | trim }}{{ 'a' + missing }}{{ none ~ 'b' }}", '0ab'],
    ["{% for x in missing | selectattr('a') %}{{ x }}{% endfor %}.", '.'],
    ['{{ {"a": 1} | string }}{{ list | string }}', '{"a": 1}[1, 2, 3]'],
    ['{{ list | min }}{{ list | max }}', '13'],
    ['{{ (\'{"a": [7]}\' | from_json).a[0] }}', '7'],
    ["{{ '<{}:{}>'.format('a', 1) }}", '<a:1>'],
    [
      '{% set q = [] %}{% set _ = q.append(4) %}{% set _ = q.append(5) %}{{ q.pop(0) }}{{ q.pop() }}{{ q | length }}',
      '450',
    ],
    [
      '{% set d = {1: "a", 20: "b"} %}{% for k, v in d | dictsort %}{{ k }}{{ v }}{% if k <= 3 %}!{% endif %}{% endfor %}',
      '1a!20b',
    ],
    ['{% for i in range(1, 4) %}{{ i }}{% endfor %}{{ range(2) | length }}', '1232'],
    ["{{ missing | default('x') }}{{ none is none }}{{ missing is defined }}", 'xtruefalse'],
  ])('renders %s', (source, expected) => {
    expect(new JinjaTemplate(source, DAY).render({ list: [1, 2, 3] })).toBe(expected);
  });

  it('gives functions of its own no other meaning, whatever variables are named', () => {
    const template = new JinjaTemplate("{{ raise_exception('no') }}", DAY);
    expect(() => template.render({ raise_exception: 'x', strftime_now: 'y', true: false })).toThrow('no');
  });
});

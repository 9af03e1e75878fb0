import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

test("the README's example runs, on the built package", () => {
  const packageFolder = fileURLToPath(new URL('..', import.meta.url));
  const readme = readFileSync(`${packageFolder}/README.md`, 'utf8');
  const example = /```ts\n([\s\S]*?)```/.exec(readme)?.[1];
  expect(example).toBeDefined();
  const code = `${example}\nconsole.log(JSON.stringify({ messages, sent: order.history.tree.nodes }));`;
  const output = execFileSync(process.execPath, ['--input-type=module', '--eval', code], {
    cwd: packageFolder,
    encoding: 'utf8',
  });
  const { messages, sent } = JSON.parse(output) as { messages: { role: string; content: string }[]; sent: number };
  expect(messages.map(({ role }) => role)).toEqual(['system', 'user']);
  expect(messages[0]!.content).toBe('Answer from the documents.');
  expect(messages[1]!.content.replaceAll(/id="[0-9a-f]{12}"/g, 'id')).toBe(
    '<document id>\nThe clock was made by Ada.\n</document>\n<document id>\nThe tower is 40 m high.\n</document>\nWho made the clock?',
  );
  expect(sent).toBe(3);
});

test("the documentation's example of looking ahead answers what it says", () => {
  const packageFolder = fileURLToPath(new URL('..', import.meta.url));
  const page = readFileSync(`${packageFolder}/../../docs/library/ordering-policies.md`, 'utf8');
  const examples = [...page.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code]) => code!);
  const example = examples.find((code) => code.includes("policy: 'foresight'"))!;
  const [, answer] = /\.order; \/\/ (\[[^\]]*\])/.exec(example)!;
  const code = example.replace(/^arrange\((.*)\.order;.*$/m, 'console.log(JSON.stringify(arrange($1.order));');
  const output = execFileSync(process.execPath, ['--input-type=module', '--eval', code], {
    cwd: packageFolder,
    encoding: 'utf8',
  });
  expect(JSON.parse(output)).toEqual(JSON.parse(answer!));
});

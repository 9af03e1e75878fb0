import { afterAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { closing, gatewayAt, OPERATOR_KEY, type StandConfig, stand } from '../../gateway/test/harness.js';
import { learnedKinds, numbered, questionFirst, questionLast } from '../../gateway/test/learned-kinds.js';
import type { PromptKindList } from '../src/index.js';
import { accessibilityFaults, closeBrowser, live, type OpenDashboard, openDashboard } from './open-dashboard.js';

afterAll(closeBrowser);

type Tenants = Parameters<typeof learnedKinds>;

async function gatewayWith(tenants: Tenants, config: StandConfig = {}): Promise<string> {
  const { gateway } = await stand(undefined, config, { promptKinds: learnedKinds(...tenants) });
  return gateway.url;
}

async function openPrompts(url: string, look: Parameters<typeof openDashboard>[1] = {}): Promise<OpenDashboard> {
  const dashboard = await openDashboard(url, look);
  await live(dashboard);
  await dashboard.page.getByRole('link', { name: 'Prompts' }).click();
  return dashboard;
}

async function listed(url: string, headers: Record<string, string> = {}): Promise<PromptKindList> {
  return (await (await fetch(`${url}/v1/prompts`, { headers })).json()) as PromptKindList;
}

describe('the page of prompts', () => {
  it('shows a program’s text with the places of documents, and a press of Allow counts', async () => {
    const url = await gatewayWith([['anonymous', questionLast]]);
    const dashboard = await openPrompts(url);
    const { page } = dashboard;
    const detail = page.getByRole('region', { name: 'The prompt' });
    await detail.getByText('not decided').waitFor();
    const program = await detail.locator('.program > *').allTextContents();
    expect(program).toEqual([
      'Use the following context.\nBe brief.',
      'documents',
      'Question:',
      'text that changes',
      'Helpful Answer:',
    ]);
    for (const [button, said, state, labels] of [
      ['Allow', 'allowed', 'allowed', 'kept'],
      ['Allow with mapped labels', 'allowed, labels mapped', 'allowed', 'mapped'],
      ['Refuse', 'refused', 'refused', 'kept'],
      ['Decide later', 'not decided', 'asking', 'kept'],
    ] as const) {
      await detail.getByRole('button', { name: button, exact: true }).click();
      await detail.locator('.status').getByText(said, { exact: true }).waitFor();
      await page.locator('.kind-list .status').getByText(said, { exact: true }).waitFor();
      expect((await listed(url)).data).toMatchObject([{ state, labels }]);
    }
    expect([dashboard.complaints, dashboard.foreign]).toEqual([[], []]);
  });

  it.runIf(isFull)('says why a prompt gains nothing, for the one that is chosen', async () => {
    const url = await gatewayWith([
      ['anonymous', questionFirst],
      ['anonymous', numbered],
    ]);
    const { page } = await openPrompts(url);
    const detail = page.getByRole('region', { name: 'The prompt' });
    await page.getByRole('button', { name: 'Sources of the archive' }).click();
    await detail.getByText('labels its documents by position').waitFor();
    await page.getByRole('button', { name: 'Question:' }).click();
    await detail.getByText('Text that changes stands before the documents').waitFor();
    await detail.getByText('No gain as it is').first().waitFor();
  });

  it.runIf(isFull)('says what it waits for where no prompt was found yet', async () => {
    const { page } = await openPrompts(await gatewayWith([]));
    await page.getByText('It needs 20 prompts with different documents').waitFor();
  });

  it('changes nothing for somebody who is not the operator, and everything for the operator', async () => {
    const config = {
      server: {
        keys: [{ name: 'acme', key: 'the-key-of-tenant-acme' }],
        operatorKey: { key: OPERATOR_KEY },
      },
    };
    const url = await gatewayWith(
      [
        ['acme', questionLast],
        ['other', questionLast],
      ],
      config,
    );
    const { page } = await openPrompts(url, { key: OPERATOR_KEY });
    await page.getByRole('button', { name: /other/ }).click();
    await page.getByRole('button', { name: 'Allow', exact: true }).click();
    await page.getByRole('region', { name: 'The prompt' }).locator('.status').getByText('allowed').waitFor();
    const { data } = await listed(url, { authorization: `Bearer ${OPERATOR_KEY}` });
    const states = Object.fromEntries(data.map(({ tenant, state }) => [tenant, state]));
    expect(states).toEqual({ acme: 'asking', other: 'allowed' });
  });

  it('shows a hostile text as what it is', async () => {
    const HOSTILE = '<img src=x onerror=alert(1)></pre></script><script>alert(2)</script>\u202e';
    const kinds = learnedKinds();
    const program = {
      id: HOSTILE,
      role: 'user',
      segments: [HOSTILE],
      opens: true,
      closes: false,
      documents: 1,
    } as const;
    kinds.restore(HOSTILE, program);
    const { engine } = await stand();
    const gateway = closing(await gatewayAt(engine.url, {}, { promptKinds: kinds }));
    const dashboard = await openPrompts(gateway.url);
    const { page } = dashboard;
    expect(await page.locator('.program > span').textContent()).toBe(HOSTILE);
    await page.getByRole('button', { name: 'Allow', exact: true }).click();
    await page.locator('.kind-list .status').getByText('allowed').waitFor();
    expect(await page.evaluate('document.images.length + document.scripts.length')).toBe(1);
    expect(dashboard.complaints).toEqual([]);
  });

  const looks = [
    { scheme: 'dark', width: 390 },
    { scheme: 'light', width: 1280 },
  ] as const;
  it.each(isFull ? looks : looks.slice(0, 1))('can be read by everybody: $scheme, $width pixels', async (look) => {
    const dashboard = await openPrompts(
      await gatewayWith([
        ['anonymous', numbered],
        ['anonymous', questionLast],
      ]),
      look,
    );
    const { page } = dashboard;
    await page.locator('.program').waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(look.width);
    expect(dashboard.complaints).toEqual([]);
  });
});

describe('the page of requests', () => {
  it('captures bodies of the next prompts, shows one, and forgets them', async () => {
    const url = await gatewayWith([['anonymous', questionLast]]);
    const dashboard = await openDashboard(url);
    await live(dashboard);
    const { page } = dashboard;
    await page.getByRole('link', { name: 'Requests' }).click();
    await page.getByRole('button', { name: 'Capture the next 10 bodies' }).click();
    await page.getByText('0 of 10 bodies captured').waitFor();
    const content = questionLast(['The harbour is old.', 'The mill is new.'], 7)[0]!.text;
    await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': 'seen' },
      body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] }),
    });
    await page.getByText('1 of 10 bodies captured').waitFor();
    await page.locator('.rows .row').first().click();
    const detail = page.getByRole('complementary', { name: 'The request' });
    await detail.getByText('The operator has not allowed this kind of prompt').waitFor();
    await detail.locator('code').getByText('warmpath prompts', { exact: true }).waitFor();
    await detail.locator('.body').getByText('The mill is new.').waitFor();
    if (isFull) expect(await accessibilityFaults(page)).toEqual([]);
    await page.getByRole('button', { name: 'Forget bodies' }).click();
    await page.getByRole('button', { name: 'Capture the next 10 bodies' }).waitFor();
    expect(await detail.locator('.body').count()).toBe(0);
    expect([dashboard.complaints, dashboard.foreign]).toEqual([[], []]);
  });
});

import { afterAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { OPERATOR_KEY } from '../../gateway/test/harness.js';
import { LOST_SESSION, standWithSession } from '../../gateway/test/lost-session.js';
import { accessibilityFaults, closeBrowser, live, openDashboard } from './open-dashboard.js';

afterAll(closeBrowser);

async function openSessions(url: string, look: Parameters<typeof openDashboard>[1] = {}) {
  const dashboard = await openDashboard(url, look);
  await live(dashboard);
  await dashboard.page.getByRole('link', { name: 'Sessions' }).click();
  return dashboard;
}

describe('the page of sessions', () => {
  it('shows what a session lost, why and where, and leads to the request', async () => {
    const { gateway, ask } = await standWithSession({ prices: [{ input: 2, cached: 0.2 }] });
    const dashboard = await openSessions(gateway.url);
    const { page } = dashboard;
    await page.getByText('No sessions yet').waitFor();
    for (const turn of LOST_SESSION) await ask(turn);
    await ask(LOST_SESSION[0]!, { 'x-session-id': 'ses_b', 'x-parent-session-id': 'ses_a' });
    await page.getByRole('button', { name: /opencode .* tokens lost/ }).click();
    const detail = page.getByRole('region', { name: 'The session' });
    await detail.getByText(/system prompt: [\d,]+ tokens, 0\.0/).waitFor();
    expect(await detail.locator('dl').innerText()).toMatch(/Prompt tokens\s+24,500[\s\S]*Computed\s+24,000/);
    expect(await detail.locator('.anomalies').innerText()).toContain('At messages[0].content, character 0.');
    expect(await page.getByRole('button', { name: /opencode .*\(agent\).* nothing lost/ }).count()).toBe(1);
    if (isFull) expect(await accessibilityFaults(page)).toEqual([]);
    await detail.getByRole('button', { name: 'Show the request' }).click();
    await page.getByRole('heading', { name: 'Latest requests' }).waitFor();
    expect([dashboard.complaints, dashboard.foreign]).toEqual([[], []]);
  });

  it.runIf(isFull)('fits a telephone, and asks for the operator’s key where there is one', async () => {
    const { gateway, ask } = await standWithSession({
      server: { keys: [{ name: 'acme', key: 'the-key-of-tenant-acme' }], operatorKey: { key: OPERATOR_KEY } },
    });
    for (const turn of LOST_SESSION) await ask(turn, { authorization: 'Bearer the-key-of-tenant-acme' });
    const { page } = await openSessions(gateway.url, { width: 390, key: OPERATOR_KEY });
    await page.getByRole('region', { name: 'The session' }).waitFor();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
    expect(await page.locator('main').innerText()).not.toContain('acme');
  });
});

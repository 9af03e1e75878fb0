import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { root } from './docs-blocks.js';

/** A dashboard as far as its types are looked at one by one. */
interface DashboardFile {
  readonly panels: readonly { readonly type: string; readonly title: string }[];
}

/** What options of panels are of, by the panel's type. */
const OPTIONS: Readonly<Record<string, string>> = { stat: 'Stat', timeseries: 'TimeSeries' };

/**
 * The types of Grafana's own schema, as JSON holds their values: enumerations by their words. What Grafana fills in
 * where a panel leaves it out may be left out; what it does not know may not be there.
 */
const TYPES = `
import type { Dashboard, GraphFieldConfig, Panel, RowPanel } from '@grafana/schema';
import type { Options as Stat } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as TimeSeries } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
type Json<T> = T extends string ? \`\${T}\` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
type Partly<T> = T extends object ? { [K in keyof T]?: Partly<T[K]> } : T;
type Fields = NonNullable<Panel['fieldConfig']>;
type Defaults = Omit<Fields['defaults'], 'custom'> & { custom?: GraphFieldConfig };
type Row = Json<RowPanel>;
type Drawn<Options> = Json<
  Omit<Panel, 'options' | 'fieldConfig'> & {
    options: Partly<Options>;
    fieldConfig: Omit<Fields, 'defaults'> & { defaults: Defaults };
  }
>;
export const dashboard: Json<Omit<Dashboard, 'panels'>> & { panels: [] } =`;

/** What a dashboard has that Grafana's schema does not allow, in the compiler's words; empty where there is nothing. */
export async function grafanaErrors(dashboard: DashboardFile): Promise<string[]> {
  // Beside the modules, where the compiler finds the schema.
  const folder = await mkdtemp(join(root, 'node_modules', '.grafana-'));
  try {
    const panels = dashboard.panels.map((panel, index) => {
      const type = panel.type === 'row' ? 'Row' : `Drawn<${OPTIONS[panel.type] ?? `'no type of ${panel.type}'`}>`;
      return `export const panel${index}: ${type} = ${JSON.stringify(panel)};`;
    });
    const file = join(folder, 'dashboard.ts');
    await writeFile(file, `${TYPES} ${JSON.stringify({ ...dashboard, panels: [] })};\n${panels.join('\n')}\n`);
    const options = ['--noEmit', '--ignoreConfig', '--strict', '--skipLibCheck', '--module', 'nodenext'];
    const output = await new Promise<string>((resolve) => {
      execFile(join(root, 'node_modules/.bin/tsc'), [...options, file], (_, stdout) => resolve(stdout));
    });
    return output.split('\n').filter((line) => line.includes('error TS'));
  } finally {
    await rm(folder, { recursive: true });
  }
}

import { describeConfig } from '@warmpath/gateway';
import { code, page, table } from './markdown.js';

const INTRODUCTION = [
  'One YAML or JSON file: `warmpath serve --config warmpath.yaml`. Only `upstream.url` is required.',
  `\`\${NAME}\` and \`\${NAME:-default}\` are replaced by environment variables inside values; \`$\${\` stands for \`\${\`.`,
  'An unknown key is an error that names the nearest known one, with its line.',
  '`warmpath check-config` finds every problem of a file at once.',
  'On SIGHUP `warmpath serve` reads its file again: a key marked _Restart_ needs a restart, the others change then ([Change the configuration](../operate/run.md#change-the-configuration)).',
].join(' ');

/** Every key of the gateway's configuration, a table a section, from its schema. */
export function configurationPage() {
  const sections = groupBySection(describeConfig());
  return page(
    'Configuration',
    INTRODUCTION,
    [...sections].map(([section, keys]) => {
      const rows = keys.map(({ path, type, default: preset, description, changesAtOnce }) => {
        const shown = preset === undefined ? '' : typeof preset === 'object' ? JSON.stringify(preset) : preset;
        return [
          code(path),
          [type.replaceAll('|', ' or '), code(shown)].filter((part) => part !== '').join(', '),
          changesAtOnce ? description : `${description} _Restart._`,
        ];
      });
      return `## ${section}\n\n${table(['key', 'type, default', 'meaning'], rows)}`;
    }),
  );
}

/** The keys by the first part of their path, in order. */
function groupBySection(keys) {
  const groups = new Map();
  for (const key of keys) {
    const [section] = key.path.split('.');
    groups.set(section, [...(groups.get(section) ?? []), key]);
  }
  return groups;
}

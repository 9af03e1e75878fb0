// Are holes known in what the packages depend on? Asks the registry: `npm run audit`. Exits with 1 where one is of high
// severity or critical. Where the registry keeps no advisories, which is so of many mirrors, it says that nothing was
// audited, and exits with 0: that is nobody's mistake in this repository.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
/** What does not let a change pass. */
const REFUSED = ['high', 'critical'];

// Once: a registry that refuses does so the second time as well.
const flags = ['--omit=dev', '--json', '--fetch-retries=0'];
const { stdout, error } = spawnSync('npm', ['audit', ...flags], { cwd: root, encoding: 'utf8' });
if (error !== undefined) throw error;
const report = read(stdout);
const { vulnerabilities, metadata } = report;
const lines = [];
if (metadata === undefined) {
  const why = report.statusCode === undefined ? 'it gave no report' : `status ${report.statusCode}`;
  lines.push(`DEPENDENCIES WERE NOT AUDITED: the registry of this machine keeps no advisories, or gave none (${why}).`);
} else {
  const found = Object.values(vulnerabilities);
  for (const { name, severity, range, via } of found) {
    const titles = via.map((one) => (typeof one === 'string' ? `by ${one}` : `${one.title} ${one.url}`));
    lines.push(`${severity}: ${name} ${range || '*'}: ${titles.join('; ')}`);
  }
  const refused = found.filter(({ severity }) => REFUSED.includes(severity)).length;
  const counts = `${found.length} with known holes, ${refused} refused.`;
  lines.push(`Audited ${metadata.dependencies.prod} dependencies: ${counts}`);
  if (refused > 0) process.exitCode = 1;
}
process.stdout.write(`${lines.join('\n')}\n`);

function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { checkConfig, describeMetrics, resolveConfig } from '@warmpath/gateway';
import { Copy, DockerfileParser, type Instruction } from 'dockerfile-ast';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { root } from './docs-blocks.js';
import { grafanaErrors } from './grafana-schema.js';
import { renderTemplate } from './helm-template.js';
import { kubernetesErrors } from './kubernetes-schema.js';

// What can be known without building a container (`npm run test:containers` does) or a cluster.

const run = promisify(execFile);
const read = (path: string) => readFileSync(join(root, path), 'utf8');
const SYSTEMD_ANALYZE = '/usr/bin/systemd-analyze';
const PROBES = ['/healthz', '/readyz'];
const ENVIRONMENT = {
  ENGINE_URL: 'http://engine:8000',
  WARMPATH_CLIENT_KEY: 'a key of the clients',
  WARMPATH_OPERATOR_KEY: 'a key of the operator',
};

/** Where a stage of the Dockerfile keeps what must last. */
function dataFolderOf(stage: string): string | undefined {
  const text = read('Dockerfile').split(`AS ${stage}\n`)[1]!.split('\nFROM ')[0]!;
  const [, folder] = /\bWARMPATH_DATA_DIR=(\S+)/.exec(text) ?? [];
  const isWritable = text.includes(`--owner=node --group=node ${folder}\n`) && text.includes(`\nVOLUME ${folder}\n`);
  return isWritable ? folder : undefined;
}

describe('the Dockerfile', () => {
  const instructions = DockerfileParser.parse(read('Dockerfile')).getInstructions();
  const stages: { readonly name: string; readonly base: string; readonly steps: Instruction[] }[] = [];
  for (const instruction of instructions) {
    const [base = '', , name = ''] = instruction.getArguments().map((argument) => argument.getValue());
    if (instruction.getKeyword() === 'FROM') stages.push({ name, base, steps: [] });
    else stages.at(-1)?.steps.push(instruction);
  }
  const argumentsOf = (stage: (typeof stages)[number], keyword: string) =>
    stage.steps.filter((step) => step.getKeyword() === keyword).map((step) => step.getArgumentsContent() ?? '');

  it('builds the gateway without --target, and the engine with it', () => {
    expect(stages.at(-1)!.name).toBe('gateway');
    expect(stages.map(({ name }) => name)).toContain('with-engine');
    const [removed = ''] = argumentsOf(stages.find(({ name }) => name === 'install-gateway')!, 'RUN');
    const { optionalDependencies } = JSON.parse(read('packages/engine/package.json')) as Record<string, object>;
    for (const name of Object.keys(optionalDependencies!)) expect(removed).toContain(name.split('/')[0]);
  });

  it.each(['gateway', 'with-engine'])('%s runs without rights, and says whether it is well', (name) => {
    const stage = stages.find((candidate) => candidate.name === name)!;
    expect(argumentsOf(stage, 'USER')).toEqual(['node']);
    expect(argumentsOf(stage, 'HEALTHCHECK').join()).toContain('http://127.0.0.1:8080/healthz');
    expect(argumentsOf(stage, 'ENTRYPOINT').join()).toContain('/app/node_modules/warmpath/bin/warmpath.js');
    expect(existsSync(join(root, 'packages/cli/bin/warmpath.js'))).toBe(true);
    const copies = stage.steps.filter((step) => step instanceof Copy);
    expect(copies).toHaveLength(1);
    for (const copy of copies) expect(stages.map((other) => other.name)).toContain(copy.getFromFlag()!.getValue());
  });

  it.each(['gateway', 'with-engine'])('%s has a folder that its user may write to, as a volume', (name) => {
    expect(dataFolderOf(name)).toBe('/var/lib/warmpath');
  });

  it('runs no script of a dependency', () => {
    const installs = stages
      .flatMap((stage) => argumentsOf(stage, 'RUN'))
      .filter((text) => /npm (ci|install)/.test(text));
    expect(installs).toHaveLength(2);
    for (const install of installs) expect(install).toContain('--ignore-scripts');
  });

  it('leaves out what is built and installed here', () => {
    expect(read('.dockerignore').split('\n')).toEqual(expect.arrayContaining(['**/node_modules', '**/dist', '.git']));
  });
});

describe('compose.yaml', () => {
  const { services } = parse(read('compose.yaml')) as {
    readonly services: Readonly<
      Record<
        string,
        {
          environment?: object;
          volumes?: string[];
          build?: { target: string };
          mem_limit?: string;
          read_only?: boolean;
          tmpfs?: string[];
        }
      >
    >;
  };

  it('gives the gateway a configuration that is right, and every variable in it', () => {
    const [mount = ''] = services['gateway']!.volumes!;
    const text = read(mount.split(':')[0]!);
    expect(checkConfig(text, ENVIRONMENT).problems).toEqual([]);
    const named = [...text.replace(/^#.*$/gm, '').matchAll(/\$\{(\w+)\}/g)].map(([, name]) => name);
    expect(Object.keys(services['gateway']!.environment!).toSorted()).toEqual(named.toSorted());
    expect(checkConfig(text, {}).problems).not.toEqual([]);
  });

  it('gives the gateway a volume where its image keeps what must last, and limits its memory', () => {
    const { volumes, mem_limit: limit, read_only: isReadOnly, tmpfs } = services['gateway']!;
    const folder = dataFolderOf('gateway')!;
    expect(volumes).toContain(`state:${folder}`);
    expect(parse(read('compose.yaml'))).toHaveProperty('volumes.state');
    expect(parse(read('deploy/compose/warmpath.yaml'))).toHaveProperty('collections.folder', `${folder}/collections`);
    expect([isReadOnly, limit, tmpfs]).toEqual([true, '768m', ['/tmp:size=256m']]);
    expect(services['redis']!.mem_limit).toBe('400m');
  });

  it('builds a stage that there is, and starts the store that the configuration names', () => {
    expect(read('Dockerfile')).toContain(`AS ${services['gateway']!.build!.target}\n`);
    expect(Object.keys(services)).toContain('redis');
  });
});

describe('the Helm chart', () => {
  const chart = 'deploy/helm/warmpath';
  const values = parse(read(`${chart}/values.yaml`)) as Record<string, unknown>;
  const templates = readdirSync(join(root, chart, 'templates'));

  /** What the chart makes of values, by kind. */
  function render(changes: object = {}): Record<string, Record<string, unknown>> {
    return Object.fromEntries(renderAll('rag', changes).map((one) => [one['kind'], one]));
  }

  function renderAll(release: string, changes: object): readonly Record<string, unknown>[] {
    const context = { Values: merged(values, changes), Release: { Name: release } };
    const rendered = templates.map((name) => parse(renderTemplate(read(`${chart}/templates/${name}`), context)));
    return rendered.filter((document) => document !== null);
  }

  /** As Helm takes several files of values: maps are merged. */
  function merged(base: unknown, changes: unknown): unknown {
    const isMap = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
    if (!isMap(base) || !isMap(changes)) return changes;
    const entries = Object.entries(changes as object);
    const known = base as Record<string, unknown>;
    return { ...known, ...Object.fromEntries(entries.map(([key, value]) => [key, merged(known[key], value)])) };
  }

  const mountsOf = (deployment: unknown) =>
    at(deployment, 'spec.template.spec.containers.0.volumeMounts') as readonly {
      readonly name: string;
      readonly mountPath: string;
      readonly readOnly?: boolean;
    }[];

  const at = (document: unknown, path: string) =>
    path.split('.').reduce((value, key) => (value as Record<string, unknown>)?.[key], document);

  it('has the version of the packages', () => {
    const { version, appVersion } = parse(read(`${chart}/Chart.yaml`)) as Record<string, string>;
    const { version: ours } = JSON.parse(read('packages/cli/package.json')) as { version: string };
    expect([version, appVersion, at(values, 'image.tag')]).toEqual([ours, ours, ours]);
  });

  it('makes a Deployment, a Service, a ConfigMap and a PodDisruptionBudget that fit together', () => {
    const made = render({ replicas: 2 });
    expect(Object.keys(made).toSorted()).toEqual(['ConfigMap', 'Deployment', 'PodDisruptionBudget', 'Service']);
    const labels = at(made['Deployment'], 'spec.template.metadata.labels');
    expect(labels).toMatchObject(at(made['Service'], 'spec.selector') as object);
    expect(labels).toMatchObject(at(made['PodDisruptionBudget'], 'spec.selector.matchLabels') as object);
    expect(at(made['Deployment'], 'spec.template.spec.volumes.0.configMap.name')).toBe(
      at(made['ConfigMap'], 'metadata.name'),
    );
  });

  it.each([
    ['alone', {}],
    ['with all that can be asked for', () => parse(read('deploy/helm/fleet.yaml')) as object],
    [
      'with what a cluster may need',
      {
        secretName: 'keys',
        stateClaim: 'warmpath-state',
        podAnnotations: { team: 'search' },
        nodeSelector: { disk: 'fast' },
        tolerations: [{ key: 'gpu', operator: 'Exists' }],
        affinity: { nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } },
      },
    ],
  ])('is what Kubernetes takes, to each field: %s', (_, changes) => {
    const made = renderAll('rag', typeof changes === 'function' ? changes() : changes);
    expect(made.length).toBeGreaterThanOrEqual(3);
    const known = made.filter(({ kind }) => kind !== 'ServiceMonitor');
    expect(known.flatMap((one) => kubernetesErrors(one) ?? [`${one['kind']} has no schema`])).toEqual([]);
  });

  it('is refused otherwise', () => {
    const { Service: service } = render();
    const ports = [{ port: 8080, targetPort: 'http', protocl: 'TCP' }];
    expect(kubernetesErrors({ ...service, spec: { ports } })).toEqual(['.spec.ports.0.protocl is not known']);
    expect(kubernetesErrors({ ...service, spec: { ports: [{ port: '8080' }] } })).toEqual([
      expect.stringContaining('port must be integer'),
    ]);
  });

  it('probes paths that the gateway has', () => {
    const container = at(render()['Deployment'], 'spec.template.spec.containers.0');
    const probed = ['liveness', 'readiness'].map((kind) => at(container, `${kind}Probe.httpGet.path`));
    expect(probed).toEqual(PROBES);
    for (const path of PROBES) expect(read('packages/gateway/src/routes/operator.ts')).toContain(`'${path}'`);
  });

  it('writes a configuration that the gateway takes', () => {
    const text = at(render()['ConfigMap'], 'data')! as Record<string, string>;
    expect(checkConfig(text['warmpath.yaml']!, {}).problems).toEqual([]);
  });

  it('leaves pods the time to end', () => {
    const text = at(render()['ConfigMap'], 'data')! as Record<string, string>;
    const { drainDelayMs } = resolveConfig(parse(text['warmpath.yaml']!) as never).server;
    const graceSeconds = at(render()['Deployment'], 'spec.template.spec.terminationGracePeriodSeconds') as number;
    expect(drainDelayMs).toBeGreaterThan(0);
    expect(1_000 * graceSeconds).toBeGreaterThan(drainDelayMs + 30_000);
  });

  it('never keeps a node from being drained for its only pod', () => {
    expect(render()).not.toHaveProperty('PodDisruptionBudget');
    expect(at(render({ replicas: 3 })['PodDisruptionBudget'], 'spec.maxUnavailable')).toBe(1);
  });

  it.each([
    ['that ends with the pod', {}, { emptyDir: { sizeLimit: '1Gi' } }, undefined],
    [
      'of a claim, for one pod at a time',
      { stateClaim: 'kept' },
      { persistentVolumeClaim: { claimName: 'kept' } },
      { type: 'Recreate' },
    ],
  ])('gives the pod a writable volume %s', (_, changes, source, strategy) => {
    const { Deployment: deployment, ConfigMap: configMap } = render(changes);
    expect(at(deployment, 'spec.strategy')).toEqual(strategy);
    const volumes = at(deployment, 'spec.template.spec.volumes') as object[];
    expect(volumes).toContainEqual({ name: 'state', ...source });
    const { mountPath } = mountsOf(deployment).find(({ name }) => name === 'state')!;
    expect(dataFolderOf('gateway')).toBe(mountPath);
    const config = parse((at(configMap, 'data') as Record<string, string>)['warmpath.yaml']!) as object;
    expect(at(config, 'collections.folder')).toBe(`${mountPath}/collections`);
    expect(at(deployment, 'spec.template.spec.securityContext.fsGroup')).toBe(1_000);
  });

  it('mounts only volumes that there are, over a file system that is read-only', () => {
    const { Deployment: deployment } = render();
    const volumes = (at(deployment, 'spec.template.spec.volumes') as { name: string }[]).map(({ name }) => name);
    expect(mountsOf(deployment).map(({ name }) => name)).toEqual(volumes);
    const writable = mountsOf(deployment).filter(({ readOnly }) => readOnly !== true);
    expect(writable.map(({ mountPath }) => mountPath)).toEqual(['/var/lib/warmpath', '/tmp']);
  });

  it('limits the memory of everything that runs beside an engine', () => {
    const made = renderAll('rag', { redis: { enabled: true } });
    for (const one of made.filter(({ kind }) => kind === 'Deployment')) {
      expect(at(one, 'spec.template.spec.containers.0.resources.limits.memory')).toMatch(/^\d+[MG]i$/);
    }
  });

  it('starts other pods for another configuration', () => {
    const hashOf = (changes?: object) =>
      at(render(changes)['Deployment'], 'spec.template.metadata.annotations') as Record<string, string>;
    const other = { config: { upstream: { url: 'http://other:8000' } } };
    expect(hashOf()['warmpath/config']).toMatch(/^[0-9a-f]{64}$/);
    expect(hashOf(other)['warmpath/config']).not.toBe(hashOf()['warmpath/config']);
  });

  it('takes keys from a Secret that is named, and a monitor where one is asked for', () => {
    expect(at(render()['Deployment'], 'spec.template.spec.containers.0.envFrom')).toBeUndefined();
    const made = render({
      secretName: 'keys',
      serviceMonitor: { enabled: true, interval: '10s', keySecret: 'keys', keyName: 'OPERATOR_KEY' },
      nodeSelector: { disk: 'fast' },
      tolerations: [{ key: 'gpu', operator: 'Exists' }],
    });
    expect(at(made['Deployment'], 'spec.template.spec.containers.0.envFrom.0.secretRef.name')).toBe('keys');
    expect(at(made['Deployment'], 'spec.template.spec.nodeSelector.disk')).toBe('fast');
    expect(at(made['Deployment'], 'spec.template.spec.tolerations.0.key')).toBe('gpu');
    expect(at(made['ServiceMonitor'], 'spec.endpoints.0.authorization.credentials')).toEqual({
      name: 'keys',
      key: 'OPERATOR_KEY',
    });
  });

  it('makes gateways, a Redis and a vLLM that find each other', () => {
    const made = renderAll('warmpath', parse(read('deploy/helm/fleet.yaml')) as object);
    const named = (kind: string, name: string) =>
      made.find((one) => one['kind'] === kind && at(one, 'metadata.name') === name);
    const text = at(named('ConfigMap', 'warmpath'), 'data') as Record<string, string>;
    expect(checkConfig(text['warmpath.yaml']!, ENVIRONMENT).problems).toEqual([]);
    const config = parse(text['warmpath.yaml']!) as object;
    for (const url of [at(config, 'upstream.url'), at(config, 'session.store.url')].map(
      (url) => new URL(String(url)),
    )) {
      const service = named('Service', url.hostname);
      const deployment = named('Deployment', url.hostname);
      expect(at(service, 'spec.ports.0.port')).toBe(Number(url.port));
      const container = at(deployment, 'spec.template.spec.containers.0');
      expect(at(container, 'ports.0')).toEqual({
        name: at(service, 'spec.ports.0.targetPort'),
        containerPort: Number(url.port),
      });
      expect(at(deployment, 'spec.template.metadata.labels')).toMatchObject(at(service, 'spec.selector') as object);
      // The gateways' own Service must not reach them.
      expect(at(service, 'spec.selector')).not.toEqual(at(named('Service', 'warmpath'), 'spec.selector'));
    }
    expect(render()).not.toHaveProperty('StatefulSet');
    expect(renderAll('rag', {}).map((one) => at(one, 'metadata.name'))).toEqual(['rag', 'rag', 'rag']);
  });

  it('starts commands that there are, with options that they have', async () => {
    const args = at(render()['Deployment'], 'spec.template.spec.containers.0.args') as string[];
    const { stdout } = await run(join(root, 'node_modules/.bin/warmpath'), [args[0]!, '--help']);
    for (const flag of args.filter((word) => word.startsWith('--'))) expect(stdout).toContain(flag);
  });

  it('runs without rights', () => {
    const pod = at(render()['Deployment'], 'spec.template.spec');
    expect(at(pod, 'securityContext.runAsNonRoot')).toBe(true);
    expect(at(pod, 'containers.0.securityContext')).toMatchObject({
      readOnlyRootFilesystem: true,
      allowPrivilegeEscalation: false,
    });
  });
});

describe('the systemd unit', () => {
  const unit = read('deploy/systemd/warmpath.service');

  it('starts a command that there is, with options that it has', async () => {
    const [, command = ''] = /^ExecStart=\/usr\/bin\/env warmpath (.*)$/m.exec(unit) ?? [];
    const [name = '', ...rest] = command.split(' ');
    const { stdout } = await run(join(root, 'node_modules/.bin/warmpath'), [name, '--help']);
    for (const flag of rest.filter((word) => word.startsWith('--'))) expect(stdout).toContain(flag);
  });

  it('has a folder of its own to write to, and a limit of memory', () => {
    expect(unit).toMatch(/^StateDirectory=warmpath$/m);
    expect(unit).toMatch(/^Environment=WARMPATH_DATA_DIR=\/var\/lib\/warmpath$/m);
    expect(unit).toMatch(/^MemoryMax=\d+M$/m);
    expect(unit).toMatch(/^ProtectSystem=strict$/m);
  });

  it.skipIf(!existsSync(SYSTEMD_ANALYZE))('is what systemd takes', async () => {
    const { stderr } = await run(SYSTEMD_ANALYZE, ['verify', join(root, 'deploy/systemd/warmpath.service')]);
    expect(stderr.split('\n').filter((line) => line.includes('warmpath'))).toEqual([]);
  });

  it('does not start again what is configured wrongly', () => {
    expect(unit).toMatch(/^RestartPreventExitStatus=.*\b78\b/m);
  });
});

describe("Grafana's dashboard", () => {
  interface Panel {
    readonly id: number;
    readonly type: string;
    readonly title: string;
    readonly description?: string;
    readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
    readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
  }
  const { panels, templating } = JSON.parse(read('deploy/grafana/warmpath.json')) as {
    readonly panels: readonly Panel[];
    readonly templating: { readonly list: readonly { readonly name: string; readonly query: string }[] };
  };
  const known = new Map(describeMetrics().map((metric) => [metric.name, metric]));
  /**
   * Sizes of what the part of the memory bounds that its own panel shows, and a number that only tells where a
   * subscription stands. In the order of their names.
   */
  const NOT_SHOWN = [
    'warmpath_kv_next_sequence',
    'warmpath_open_arrangements',
    'warmpath_recorded_requests',
    'warmpath_sent_messages',
    'warmpath_warm_prefixes',
  ];
  const expressions = panels.flatMap(({ title, targets = [] }) => targets.map((target) => ({ title, ...target })));

  it("is of Grafana's own schema", async () => {
    const dashboard = JSON.parse(read('deploy/grafana/warmpath.json')) as { panels: { type: string; title: string }[] };
    expect(await grafanaErrors(dashboard)).toEqual([]);
    // What it does not know, or has other words for, is found.
    const [row, panel] = dashboard.panels;
    const wrong = { ...panel!, options: { graphMode: 'areas' } };
    const unknown = { ...row!, folded: true };
    const found = await grafanaErrors({ ...dashboard, panels: [wrong, unknown] });
    expect(found).toHaveLength(2);
    expect(found.join('\n')).toMatch(/areas[\s\S]*folded/);
  });

  it('asks only for metrics and labels that the gateway has', () => {
    expect(expressions.length).toBeGreaterThan(20);
    for (const { title, expr, legendFormat } of expressions) {
      const names = [...expr.matchAll(/warmpath_\w+/g)].map(([name]) => name.replace(/_bucket$/, ''));
      expect(names, title).not.toEqual([]);
      const labels = new Set(['job', 'instance', ...names.flatMap((name) => known.get(name)?.labels ?? [])]);
      for (const name of names) expect(known.has(name), `${title}: ${name}`).toBe(true);
      const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list]) => list!.split(', '));
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label!);
      for (const label of [...grouped, ...shown].filter((label) => label !== 'le'))
        expect(labels, title).toContain(label);
      for (const name of names.filter((name) => known.get(name)!.type === 'counter')) {
        expect(expr, title).toMatch(new RegExp(`rate\\(${name}\\{`));
      }
    }
    for (const { query } of templating.list.slice(1)) expect(query).toContain('warmpath_requests_total');
  });

  it('shows every metric, but those that say nothing over time', () => {
    const shown = new Set(expressions.flatMap(({ expr }) => [...expr.matchAll(/warmpath_\w+/g)].map(([name]) => name)));
    const missing = [...known.values()].filter(({ name, type }) => {
      return !shown.has(type === 'histogram' ? `${name}_bucket` : name);
    });
    expect(missing.map(({ name }) => name)).toEqual(NOT_SHOWN);
  });

  it('has panels that say what they show and do not cover each other', () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    for (const [place, { type, title, description, gridPos: own }] of panels.entries()) {
      expect(title).not.toBe('');
      if (type !== 'row') expect(description, title).toMatch(/\.$/);
      expect(own.x + own.w).toBeLessThanOrEqual(24);
      for (const { title: other, gridPos } of panels.slice(place + 1)) {
        const isBeside = own.x + own.w <= gridPos.x || gridPos.x + gridPos.w <= own.x;
        const isBelow = own.y + own.h <= gridPos.y || gridPos.y + gridPos.h <= own.y;
        expect(isBeside || isBelow, `${title} and ${other}`).toBe(true);
      }
    }
  });
});

import { describe, expect, it } from 'vitest';
import { engineOptionsSchema, parseEngineOptions } from '../src/options.js';

describe('the options of an engine', () => {
  it('all have a default but the model, its template, the folders, the addresses of events and what depends on the model', () => {
    const options = parseEngineOptions({});
    const unset = Object.keys(engineOptionsSchema.shape).filter((name) => !(name in options));
    expect(unset.sort()).toEqual([
      'cacheDir',
      'chatTemplate',
      'chatTemplateFile',
      'diskTier',
      'hostTier',
      'kvEvents',
      'kvEventsReplay',
      'model',
    ]);
    expect(options.threads).toBeGreaterThanOrEqual(1);
    expect(options.batchTokens).toBeGreaterThanOrEqual(options.maxRunning);
  });

  it('all say what they are', () => {
    for (const [name, schema] of Object.entries(engineOptionsSchema.shape)) {
      expect(schema.description, name).toMatch(/\w/);
    }
  });

  it.each([
    [{ port: 70_000 }, 'port'],
    [{ contextTokens: 10 }, 'contextTokens'],
    [{ maxRunning: 129 }, 'maxRunning'],
    [{ model: '' }, 'model'],
    [{ chatTemplate: 'llama3' }, 'chatTemplate'],
    [{ chatTemplate: 'chatml', chatTemplateFile: 'a.jinja' }, 'chatTemplateFile'],
    [{ templateDate: 'today' }, 'templateDate'],
    [{ batchTokens: 32, maxRunning: 33 }, 'batchTokens'],
    [{ batchTokens: 63, batchInvariant: true }, 'batchTokens'],
  ])('are refused with the path of what is wrong: %j', (options, path) => {
    expect(() => parseEngineOptions(options)).toThrow(
      expect.objectContaining({ code: 'WARMPATH_CONFIG_INVALID', path }),
    );
  });

  it('refuse a key that they do not know', () => {
    expect(() => parseEngineOptions({ ports: 1 } as object)).toThrow('ports');
  });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EngineHealth } from '../src/engines/engine-health.js';

const SETTINGS = { checkMs: 1_000, failures: 3, ejectMs: 100 };
const failed = { kind: 'failed', reason: 'status 503', answered: true } as const;
const unreachable = { kind: 'failed', reason: 'WARMPATH_UPSTREAM_UNREACHABLE', answered: false } as const;
const served = { kind: 'served' } as const;

function stand(hasReplacement: () => boolean = () => true) {
  const clock = { ms: 0 };
  const changes: string[] = [];
  const health = new EngineHealth(SETTINGS, {
    now: () => clock.ms,
    hasReplacement,
    changed: (state) => changes.push(state),
  });
  return { clock, changes, health };
}

describe('the health of an engine', () => {
  it('ends with failures in a row, and with nothing less', () => {
    const { health, changes } = stand();
    for (const end of [failed, failed, served, failed, failed]) health.ended(end);
    expect(health.isAvailable).toBe(true);
    health.ended(failed);
    expect(health.isAvailable).toBe(false);
    expect(changes).toEqual(['ejected']);
  });

  it('lets one request try it when its time is over; a failure doubles the time, a served request ends it', () => {
    const { health, clock, changes } = stand();
    for (let i = 0; i < 3; i++) health.ended(failed);
    clock.ms = 99;
    expect(health.isAvailable).toBe(false);
    clock.ms = 100;
    expect(health.state).toBe('trial');
    expect(health.isAvailable).toBe(true);
    health.took();
    expect(health.isAvailable).toBe(false);
    health.ended(failed);
    clock.ms = 299;
    expect(health.isAvailable).toBe(false);
    clock.ms = 300;
    health.took();
    health.ended(served);
    expect([health.state, health.isAvailable, changes]).toEqual(['up', true, ['ejected', 'up']]);
  });

  it('does not wait for ever for a trial whose client has left', () => {
    const { health, clock } = stand();
    for (let i = 0; i < 3; i++) health.ended(failed);
    clock.ms = 100;
    health.took();
    clock.ms = 200;
    expect(health.isAvailable).toBe(true);
  });

  it('believes a check that an engine is back only where it could not be reached', () => {
    for (const [end, state] of [
      [unreachable, 'up'],
      [failed, 'trial'],
    ] as const) {
      const { health, clock } = stand();
      for (let i = 0; i < 3; i++) health.ended(end);
      health.checked(undefined);
      expect(health.state).toBe('ejected');
      clock.ms = 100;
      health.checked(undefined);
      expect(health.state).toBe(state);
    }
  });

  it('counts checks that fail, and spends no request while they do', () => {
    const { health, clock } = stand();
    for (let i = 0; i < 3; i++) health.checked('down');
    expect(health.state).toBe('ejected');
    for (clock.ms = 90; clock.ms < 5_000; clock.ms += 90) {
      health.checked('down');
      expect(health.isAvailable).toBe(false);
    }
  });

  it('never ejects the last one', () => {
    const { health, changes } = stand(() => false);
    for (let i = 0; i < 10; i++) health.ended(failed);
    expect([health.isAvailable, changes]).toEqual([true, []]);
  });

  it('is ejected for five minutes at most, and returns whatever happened before', () => {
    const steps = fc.constantFrom('failed', 'unreachable', 'served', 'check', 'bad check', 'took', 'wait');
    fc.assert(
      fc.property(fc.array(fc.tuple(steps, fc.nat(400_000)), { maxLength: 80 }), (history) => {
        const { health, clock, changes } = stand();
        for (const [step, ms] of history) {
          if (step === 'failed') health.ended(failed);
          else if (step === 'unreachable') health.ended(unreachable);
          else if (step === 'served') health.ended(served);
          else if (step === 'took') health.took();
          else if (step === 'wait') clock.ms += ms;
          else health.checked(step === 'check' ? undefined : 'down');
        }
        // Changes are told in turn, and as the state is.
        for (const [place, change] of changes.entries()) expect(change).toBe(place % 2 === 0 ? 'ejected' : 'up');
        expect(health.state === 'up').toBe(changes.length % 2 === 0);
        clock.ms += 300_000;
        expect(health.isAvailable).toBe(true);
        health.took();
        health.ended(served);
        expect(health.state).toBe('up');
      }),
      { seed: 5, numRuns: 500 },
    );
  });
});

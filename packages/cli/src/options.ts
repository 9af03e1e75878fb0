import { WarmpathError } from '@warmpath/core';
import { type Command, InvalidArgumentError } from 'commander';
import type { EngineAddress } from './engine-client.js';

/** Parses an option that takes a whole number; anything else is a usage error that states the range. */
export function wholeNumber(min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= min && value <= max) return value;
    const range = max === Number.MAX_SAFE_INTEGER ? `of ${min} or more` : `from ${min} to ${max}`;
    throw new InvalidArgumentError(`A whole number ${range} was expected.`);
  };
}

/** Parses an option that may be given more than once. */
export function oneMore(text: string, before: readonly string[] = []): string[] {
  return [...before, text];
}

/** A TCP port; 0 for any free one. */
export const tcpPort = wholeNumber(0, 65_535);

/** Parses an option that takes a URL of HTTP. */
export function httpUrl(text: string): string {
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return text;
  throw new InvalidArgumentError('A URL with http:// or https:// was expected, such as http://127.0.0.1:8000.');
}

/** The options of commands that can work on an engine that runs already. */
export interface EngineUrlOptions {
  readonly engine?: string;
  /** A name that the engine serves. */
  readonly model?: string;
  readonly keyEnv?: string;
}

/** Adds `--engine` and `--key-env`. */
export function addEngineUrlOptions(command: Command, description: string): Command {
  return addKeyOption(command).option(
    '--engine <url>',
    `${description}; --model then names one of its models`,
    httpUrl,
  );
}

/** Adds `--key-env`. */
export function addKeyOption(command: Command): Command {
  return command.option('--key-env <name>', "environment variable that holds the engine's API key");
}

/** Adds `--gateway`. */
export function addGatewayOption(command: Command): Command {
  return command.option('--gateway <url>', 'the gateway', httpUrl, 'http://127.0.0.1:8080');
}

/** The key from the variable that `--key-env` names. Error: `WARMPATH_CONFIG_VARIABLE`. */
export function keyFrom(
  { keyEnv }: Pick<EngineUrlOptions, 'keyEnv'>,
  environment: NodeJS.ProcessEnv,
): string | undefined {
  if (keyEnv === undefined) return undefined;
  const key = environment[keyEnv];
  if (key) return key;
  throw new WarmpathError('WARMPATH_CONFIG_VARIABLE', {
    path: '--key-env',
    detail: `the environment variable ${keyEnv} is not set`,
  });
}

/** Where the engine is, and the key from the environment variable that `--key-env` names. */
export function engineAddress(options: EngineUrlOptions, environment: NodeJS.ProcessEnv): EngineAddress {
  const url = options.engine!;
  const apiKey = keyFrom(options, environment);
  return apiKey === undefined ? { url } : { url, apiKey };
}

/** Parses an option that takes an object as JSON. */
export function jsonObject(text: string): object {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // Told below.
  }
  throw new InvalidArgumentError('An object in JSON was expected, such as {"lang": "de"}.');
}

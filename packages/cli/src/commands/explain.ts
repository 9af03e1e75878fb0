import { WarmpathError } from '@warmpath/core';
import { API_NAMES, type ApiName, explainRequest, type GatewayConfig, loadConfig } from '@warmpath/gateway';
import { type Command, Option } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { describeExplanation } from '../explain/describe-explanation.js';
import { readInput } from '../files/read-input.js';
import { addGatewayOption } from '../options.js';
import { withGateway } from '../with-gateway.js';

const EXPLAIN_HELP = `
Input is the body of a request to /v1/chat/completions, /v1/completions, /v1/messages or /v1/responses, or a record
of one: {"path", "body"}, a line of a batch, an entry of an HTTP archive (HAR). Nothing is sent anywhere.
With --after, documents are ordered as if the engine had served that request before, and the first difference of the two prompts is
named with its cause. Token counts are estimated.`;

interface ExplainCommandOptions {
  readonly after?: string;
  readonly api?: ApiName;
  readonly blocks?: boolean;
  readonly config?: string;
  readonly request?: string;
  readonly gateway: string;
  readonly keyEnv?: string;
}

/** Adds `warmpath explain`. */
export function addExplainCommand(program: Command, { terminal, stdin, environment }: CommandContext): void {
  const command = addCommand(
    program,
    'explain',
    'show the documents found in a request, their order, and why a prefix broke',
  );
  addGatewayOption(command)
    .argument('[file]', 'JSON file with the body of a request; standard input if left out or -')
    .option('--request <id>', 'in place of the file: a request that the gateway has captured (`POST /v1/capture`)')
    .option('--key-env <name>', "environment variable that holds the gateway's operator key")
    .option('--after <file>', 'the body of a request that was served before')
    .addOption(new Option('--api <name>', 'which API the request is for (default: detected)').choices(API_NAMES))
    .option('--config <file>', 'do as the gateway with this configuration does (`arrange`)')
    .option('--blocks', 'refer to parts of documents as well (default: what the body says in warmpath.blocks)')
    .addHelpText('after', EXPLAIN_HELP)
    .action(async (file: string | undefined, options: ExplainCommandOptions) => {
      const { after, api, config, blocks, request } = options;
      if (request !== undefined && file !== undefined) {
        throw new WarmpathError('WARMPATH_USAGE', { path: '--request', detail: 'takes the place of the file' });
      }
      if (after === '-' && request === undefined && (file === undefined || file === '-')) {
        throw new WarmpathError('WARMPATH_USAGE', {
          path: '--after',
          detail: 'only one of the two can be standard input',
        });
      }
      const given =
        request === undefined
          ? await readInput(file, stdin)
          : await withGateway(options, environment, async (gateway, signal) =>
              JSON.stringify(await gateway.get(`/v1/capture/${encodeURIComponent(request)}`, signal)),
            );
      const configured = config === undefined ? undefined : await loadConfig(config, environment);
      const explanation = explainRequest(given, {
        ...(configured !== undefined && { arrange: orderOf(configured) }),
        ...(api !== undefined && { api }),
        ...(blocks !== undefined && { blocks }),
        ...(after !== undefined && { after: await readInput(after, stdin) }),
      });
      for (const line of describeExplanation(explanation, terminal.style)) terminal.line(line);
      terminal.data(explanation);
    });
}

function orderOf({ arrange: { policy, maxShift, shiftPrice } }: GatewayConfig) {
  return { policy, shiftPrice, ...(maxShift !== undefined && { maxShift }) };
}

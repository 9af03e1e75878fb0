import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { PHASE_NAMES, phasesOf } from './figures.ts';
import { causeText, count, milliseconds, money, percent } from './format.ts';
import { Prose } from './prose.tsx';
import { feed, requests, selectedRequest, settings, tick } from './state.ts';

/** As `GET /v1/requests/{id}` tells it. */
interface Record {
  readonly id: string;
  readonly route: string;
  readonly status: number;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly predictedCachedTokens: number | null;
  readonly baselineTokens: number | null;
  readonly gainTokens: number | null;
  readonly cacheWriteTokens: number | null;
  readonly cost: number | null;
  readonly baselineCost: number | null;
  /** Why nothing was gained: a name in `settings.noGainReasons`. */
  readonly noGain: string | null;
  /** Where there are several. */
  readonly engine: {
    readonly name: string;
    readonly candidates: number;
    readonly newTokens: number;
    readonly pendingTokens: number;
    readonly tried: number;
  } | null;
  readonly retrieval: {
    readonly stages: number;
    readonly passages: number;
    readonly speculation: 'confirmed' | 'wrong' | null;
  } | null;
  readonly references: number;
  readonly shortened: number;
  readonly deduplicatedTokens: number;
  readonly blocks: readonly {
    readonly format: string;
    readonly documents: number;
    readonly decided: string;
    readonly order: readonly number[];
    readonly references: readonly number[];
  }[];
  readonly failedOpen: readonly { readonly fallback: string; readonly reason: string }[];
  readonly prefix: {
    readonly comparedWith: string | null;
    readonly break: {
      readonly cause: string;
      readonly piece: string;
      readonly remedy: string;
      readonly sharedTokens: number;
    } | null;
  } | null;
}

const SPECULATED = { confirmed: 'was the right one', wrong: 'was ended: others were found', none: 'none' } as const;

const DECIDED: Readonly<{ [decision: string]: string }> = {
  arranged: 'ordered for the cache',
  replayed: 'as it was sent before',
  fixed: 'left as it came',
  history: 'part of the history',
};

/** Everything that is known of one request. */
export function RequestDetail({ id }: { readonly id: string }) {
  const [record, setRecord] = useState<Record | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  useEffect(() => {
    let isWanted = true;
    feed.get<Record>(`/ui/requests/${encodeURIComponent(id)}`).then(
      (found) => isWanted && setRecord(found),
      (error: Error) => isWanted && setTrouble(error.message),
    );
    return () => {
      isWanted = false;
    };
  }, [id]);
  const summary = requests.value.find((request) => request.id === id);
  return (
    <aside class="card detail" aria-label="The request">
      <div class="heading">
        <h2>Request</h2>
        <button
          type="button"
          class="quiet"
          onClick={() => {
            selectedRequest.value = null;
          }}
        >
          Close
        </button>
      </div>
      <p class="id">
        <code>{id}</code>
      </p>
      {summary !== undefined && (
        <Facts title="Stages">
          {phasesOf(summary).map(({ phase, ms }) => (
            <Fact key={phase} name={PHASE_NAMES[phase]} colour={`--phase-${phase}`}>
              {milliseconds(ms)}
            </Fact>
          ))}
          <Fact name="In all">{milliseconds(summary.durationMs)}</Fact>
        </Facts>
      )}
      {trouble !== null && <p class="error">{trouble} Older requests are forgotten first.</p>}
      {record !== null && <Explained record={record} />}
      <CapturedBody id={id} />
    </aside>
  );
}

/** The body as its client sent it, where the operator had it captured. */
function CapturedBody({ id }: { readonly id: string }) {
  const [body, setBody] = useState<string | null>(null);
  const isCaptured = tick.value!.capture.captured.some((each) => each.id === id);
  useEffect(() => {
    setBody(null);
    if (!isCaptured) return;
    let isWanted = true;
    feed.get<{ readonly body: string }>(`/v1/capture/${encodeURIComponent(id)}`).then(
      (found) => isWanted && setBody(found.body),
      // It was forgotten, or is not for this viewer.
      () => {},
    );
    return () => {
      isWanted = false;
    };
  }, [id, isCaptured]);
  if (body === null) return null;
  return (
    <section>
      <h3>Captured body</h3>
      <p class="beside">
        <code>warmpath explain --request {id}</code> says what the gateway does with it.
      </p>
      <pre class="body" tabIndex={0}>
        {indented(body)}
      </pre>
    </section>
  );
}

function indented(body: string): string {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}

function Explained({ record }: { readonly record: Record }) {
  const { promptTokens, cachedTokens, predictedCachedTokens: predicted, baselineTokens, gainTokens, prefix } = record;
  const part = (tokens: number | null) =>
    tokens === null || promptTokens === null ? '' : ` (${percent(tokens / promptTokens)})`;
  const reason = settings.value!.noGainReasons.find(({ name }) => name === record.noGain);
  return (
    <>
      {reason !== undefined && (
        <section>
          <h3>Why nothing was added</h3>
          <p>
            <Prose text={reason.message} />
          </p>
        </section>
      )}
      <Facts title="Tokens">
        <Fact name="Prompt">{count(promptTokens)}</Fact>
        <Fact name="Cached, as the engine reports">
          {count(cachedTokens)}
          {part(cachedTokens)}
        </Fact>
        <Fact name="Cached, as predicted">
          {count(predicted)}
          {part(predicted)}
        </Fact>
        <Fact name="Cached without Warmpath">
          {count(baselineTokens)}
          {part(baselineTokens)}
        </Fact>
        <Fact name="Added by Warmpath">
          {count(gainTokens)}
          {part(gainTokens)}
        </Fact>
        {(record.cacheWriteTokens ?? 0) > 0 && (
          <Fact name="Written into the cache">{count(record.cacheWriteTokens)}</Fact>
        )}
        {record.cost !== null && (
          <>
            <Fact name="Prompt cost without Warmpath">{money(record.baselineCost)}</Fact>
            <Fact name="Prompt cost with Warmpath">{money(record.cost)}</Fact>
          </>
        )}
        {record.deduplicatedTokens > 0 && (
          <Fact name={`Not sent again (${record.references + record.shortened} documents)`}>
            {count(record.deduplicatedTokens)}
          </Fact>
        )}
      </Facts>
      {record.retrieval !== null && (
        <Facts title="Retrieval">
          <Fact name="Passages">{count(record.retrieval.passages)}</Fact>
          <Fact name="Stages of the search">{count(record.retrieval.stages)}</Fact>
          <Fact name="Generation before its end">{SPECULATED[record.retrieval.speculation ?? 'none']}</Fact>
        </Facts>
      )}
      {record.engine !== null && (
        <Facts title={`Engine ${record.engine.name}`}>
          <Fact name="One of">{count(record.engine.candidates)}</Fact>
          <Fact name="Tokens to compute, expected">{count(record.engine.newTokens)}</Fact>
          <Fact name="Tokens that others waited for there">{count(record.engine.pendingTokens)}</Fact>
          {record.engine.tried > 0 && <Fact name="Engines that failed before">{count(record.engine.tried)}</Fact>}
        </Facts>
      )}
      {record.blocks.map((block, i) => (
        <section key={i} class="block">
          <h3>
            {block.documents} documents, {DECIDED[block.decided] ?? block.decided}
          </h3>
          <Order order={block.order} />
          {block.references.length > 0 && (
            <p class="beside">Referred to, not repeated: {block.references.map((rank) => rank + 1).join(', ')}</p>
          )}
        </section>
      ))}
      <section>
        <h3>Prefix</h3>
        <p>{prefixText(prefix)}</p>
        {prefix?.break != null && (
          <p class="beside">
            <Prose text={prefix.break.remedy} />
          </p>
        )}
      </section>
      {record.failedOpen.map(({ fallback, reason }) => (
        <p key={`${fallback} ${reason}`} class="error">
          Went without: {fallback} ({reason})
        </p>
      ))}
    </>
  );
}

function prefixText(prefix: Record['prefix']): ComponentChildren {
  if (prefix === null) {
    if (settings.value!.comparesPrompts) return 'This prompt was not compared with earlier ones.';
    return (
      <>
        Set <code>explain.prompts: all</code> to learn where prompts part from earlier ones, and why.
      </>
    );
  }
  if (prefix.comparedWith === null) return 'No earlier prompt of this tenant and model is known.';
  if (prefix.break === null) return `It continues request ${prefix.comparedWith} without a break.`;
  const { cause, piece, sharedTokens } = prefix.break;
  return `It shares ${count(sharedTokens)} tokens with request ${prefix.comparedWith}, then parts in ${piece}: ${causeText(cause)}.`;
}

/** Retrieval ranks in the order in which the documents stood in the prompt. */
function Order({ order }: { readonly order: readonly number[] }) {
  return (
    <ol class="order" aria-label="Retrieval ranks in prompt order">
      {order.slice(0, 60).map((rank, place) => (
        <li key={rank} class={rank === place ? undefined : 'moved'}>
          {rank + 1}
        </li>
      ))}
      {order.length > 60 && <li>… {order.length - 60} more</li>}
    </ol>
  );
}

function Facts({ title, children }: { readonly title: string; readonly children: ComponentChildren }) {
  return (
    <section>
      <h3>{title}</h3>
      <dl>{children}</dl>
    </section>
  );
}

function Fact(props: { readonly name: string; readonly colour?: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>
        {props.colour !== undefined && <span class="key-box" style={{ background: `var(${props.colour})` }} />}
        {props.name}
      </dt>
      <dd>{props.children}</dd>
    </div>
  );
}

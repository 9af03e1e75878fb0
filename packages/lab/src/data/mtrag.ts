import { WarmpathError } from '@warmpath/core';
import { fingerprint } from '@warmpath/core/internal';
import type { WorkloadRequest } from '../workloads/workload.js';
import { invalid, JsonFields } from './json-fields.js';
import { readLines } from './lines.js';
import { type IndexedPassage, indexedPassage, Retriever } from './passages.js';
import { textSpan } from './requests.js';

/** Tasks are held together, for their passages are the corpus. */
const MAX_TASKS = 100_000;

interface Message {
  readonly isUser: boolean;
  readonly text: string;
}

/** One task of MTRAG: a conversation that ends with a question, and the passages that belong to it. */
interface Task {
  readonly conversation: string;
  /** Passages are searched within one collection. */
  readonly collection: string;
  readonly messages: readonly Message[];
  readonly passages: readonly IndexedPassage[];
  /** The reference answer to the last question. */
  readonly answer: string | undefined;
}

/**
 * Every task with the passages that the data give it, in their order, at most `topK`, and with the conversation so far
 * behind them. Errors with line and path.
 */
export async function* mtragContextRequests(
  file: string,
  topK: number = Number.POSITIVE_INFINITY,
): AsyncGenerator<WorkloadRequest> {
  for (const [number, { messages, passages, conversation }] of (await readTasks(file)).entries()) {
    const documents = new Set(passages.slice(0, topK).map(({ document }) => document));
    const spoken = messages.map(({ text }) => text).join('\n');
    yield { documents: [...documents], question: textSpan(`task ${number}`, spoken), session: conversation };
  }
}

/** One question of a conversation, with what was found for it and what was answered. */
export interface DialogueTurn {
  readonly question: string;
  /** In retrieval order. */
  readonly passages: readonly IndexedPassage[];
  /** The answer of the data; `undefined` where it has none. */
  readonly answer: string | undefined;
}

/** A conversation in words. */
export interface Dialogue {
  readonly id: string;
  readonly turns: readonly DialogueTurn[];
}

/**
 * The conversations of a file of tasks, each a list of turns: every question of the user with the `topK` passages that
 * BM25 finds by it and the question before, among all passages of its collection in the file. A conversation with
 * several tasks counts once, at its longest. Errors with line and path.
 */
export async function mtragDialogues(file: string, topK: number): Promise<readonly Dialogue[]> {
  const { tasks, retrieverOf } = await searchable(file);
  return tasks.map((task) => ({ id: task.conversation, turns: dialogueOf(task, retrieverOf(task), topK) }));
}

/** The same conversations as requests of a workload. Errors with line and path. */
export async function mtragConversations(file: string, topK: number): Promise<readonly (readonly WorkloadRequest[])[]> {
  const dialogues = await mtragDialogues(file, topK);
  return dialogues.map(({ id, turns }) =>
    turns.map(({ question, passages, answer }, place) => {
      const name = `${id} ${place + 1}`;
      return {
        documents: passages.map(({ document }) => document),
        question: textSpan(`question ${name}`, question),
        // What was never answered still stands in the conversation.
        answer: answer === undefined ? { key: `answer ${name}`, tokens: 0 } : textSpan(`answer ${name}`, answer),
        session: id,
      };
    }),
  );
}

/** Each conversation at its longest, and where its passages are searched. */
async function searchable(file: string): Promise<{
  readonly tasks: readonly Task[];
  readonly retrieverOf: (task: Task) => Retriever<IndexedPassage>;
}> {
  const tasks = await readTasks(file);
  const longest = new Map<string, Task>();
  const corpora = new Map<string, Map<string, IndexedPassage>>();
  for (const task of tasks) {
    const known = longest.get(task.conversation);
    if (known === undefined || known.messages.length < task.messages.length) longest.set(task.conversation, task);
    const corpus = corpora.get(task.collection) ?? new Map<string, IndexedPassage>();
    corpora.set(task.collection, corpus);
    for (const passage of task.passages) corpus.set(passage.id, passage);
  }
  const retrievers = new Map([...corpora].map(([name, corpus]) => [name, new Retriever([...corpus.values()])]));
  return { tasks: [...longest.values()], retrieverOf: ({ collection }) => retrievers.get(collection)! };
}

function dialogueOf(task: Task, retriever: Retriever<IndexedPassage>, topK: number): readonly DialogueTurn[] {
  const turns: DialogueTurn[] = [];
  let before = '';
  for (const [place, { isUser, text }] of task.messages.entries()) {
    if (!isUser) continue;
    const reply = task.messages[place + 1];
    const answer = reply === undefined ? task.answer : reply.isUser ? undefined : reply.text;
    turns.push({ question: text, passages: retriever.search(`${before} ${text}`, topK), answer });
    before = text;
  }
  return turns;
}

/**
 * Reads tasks: `{conversation_id, Collection?, input: [{speaker, text}], contexts: [{document_id, title?, text}],
 * targets?: [{text}]}`.
 */
async function readTasks(file: string): Promise<readonly Task[]> {
  const tasks: Task[] = [];
  const known = new Map<string, IndexedPassage>();
  for await (const line of readLines(file)) {
    const fields = JsonFields.ofLine(line);
    if (tasks.length === MAX_TASKS) {
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
        path: fields.path,
        detail: `At most ${MAX_TASKS} tasks are read.`,
      });
    }
    const messages = fields.objects('input').map((message) => readMessage(message));
    if (messages.at(-1)?.isUser !== true) throw invalid(fields.pathOf('input'), 'a conversation ends with the user');
    tasks.push({
      conversation: fields.text('conversation_id'),
      collection: fields.optionalText('Collection') ?? '',
      messages,
      passages: fields.objects('contexts').map((passage) => readPassage(passage, known)),
      answer: fields.has('targets') ? fields.objects('targets')[0]?.text('text') : undefined,
    });
  }
  return tasks;
}

function readMessage(message: JsonFields): Message {
  const speaker = message.text('speaker');
  if (speaker !== 'user' && speaker !== 'agent') throw invalid(message.pathOf('speaker'), 'user or agent was expected');
  return { isUser: speaker === 'user', text: message.text('text') };
}

/** The same passage is one document in every task; another text under its id is another document. */
function readPassage(fields: JsonFields, known: Map<string, IndexedPassage>): IndexedPassage {
  const passage = {
    id: fields.text('document_id'),
    title: fields.optionalText('title') ?? '',
    content: fields.text('text'),
  };
  const same = known.get(passage.id);
  if (same !== undefined && same.content !== passage.content) {
    return readAs({ ...passage, id: `${passage.id}~${fingerprint([passage.content])}` }, known);
  }
  return readAs(passage, known);
}

function readAs(passage: Parameters<typeof indexedPassage>[0], known: Map<string, IndexedPassage>): IndexedPassage {
  const existing = known.get(passage.id) ?? indexedPassage(passage);
  known.set(passage.id, existing);
  return existing;
}

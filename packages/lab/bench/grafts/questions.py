"""Questions with five documents each, as tokens: the orders, the earlier prompts that are sources, the right answers.

A folder of data holds BEIR folders (`corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`): `squad2`, `hotpotqa` and
`multihop-rag`. Everything is seeded: the same data and tokenizer give the same questions.
"""
import collections
import json
import math
import random
import re
from dataclasses import dataclass
from pathlib import Path

DOCUMENTS = 5
MAX_ANSWER_TOKENS = 12
MULTIHOP_RAG_QUESTIONS = 240
MIXED_GRAFT_SHARE = 0.6
TURNS = 3

EXAMPLES = [
    (['Mount Kenya: Mount Kenya is the highest mountain in Kenya and the second highest in Africa, after Kilimanjaro. '
      'Its highest peak, Batian, rises to 5,199 metres.'],
     'What is the highest peak of Mount Kenya?', 'Batian'),
    (['Ada Lovelace: Ada Lovelace was an English mathematician, born in London in 1815, known for her work on the '
      'Analytical Engine of Charles Babbage.',
      'Batian: Batian Peak was first climbed in 1899 by Halford Mackinder.'],
     'In which year was the woman known for work on the Analytical Engine born?', '1815'),
    (['Lake Como: Lake Como is a lake in Lombardy, Italy.',
      'Lake Garda: Lake Garda is the largest lake in Italy.'],
     'Are Lake Como and Lake Garda in different countries?', 'no'),
]
NEXT_TURN = '<|im_end|>\n<|im_start|>user\nDocuments:\n\n'


def ask(question):
    return f'Question: {question}<|im_end|>\n<|im_start|>assistant\n'


SYSTEM = ('<|im_start|>system\nAnswer each question with a short phrase taken from the documents, or with yes or no. '
          'Write nothing but the answer.<|im_end|>\n<|im_start|>user\nDocuments:\n\n')
for _documents, _question, _answer in EXAMPLES:
    SYSTEM += ''.join(text + '\n\n' for text in _documents) + ask(_question) + _answer + NEXT_TURN


@dataclass
class Question:
    id: str
    draw: int
    cluster: str
    """Questions of one source paragraph, and draws of one question, are one cluster."""
    text: str
    answers: list
    retrieved: list
    """Five documents; the ones with the answer first."""
    documents: list = None
    """The retrieved ones in the order of the prompt. It is random."""
    other_order: list = None
    sources: list = None
    """For each document: the documents behind which another question's prompt computed it."""
    mixed: list = None
    """For each document what an engine with grafts does: exact, graft or new, and behind which documents."""
    prompt: list = None
    """Tokens of the question."""
    answer: list = None
    """Tokens of the shortest right answer."""


@dataclass
class QuestionSet:
    name: str
    questions: list
    tokens: dict
    """Tokens of each document."""


def read_set(name, folder, encode):
    """The questions of one of SETS, with their documents as tokens."""
    questions, history, texts, seed = SETS[name](Path(folder))
    return finish(name, questions, history, texts, random.Random(seed) if isinstance(seed, int) else seed, encode)


def conversations(questions):
    """Lists of three questions of the first draw whose documents are disjoint."""
    free = [question for question in questions if question.draw == 0]
    found = []
    while len(free) >= TURNS:
        turns = [free.pop(0)]
        used = set(turns[0].documents)
        for question in list(free):
            if len(turns) < TURNS and not set(question.documents) & used:
                turns.append(question)
                used |= set(question.documents)
                free.remove(question)
        if len(turns) == TURNS:
            found.append(turns)
    return found


def squad(folder, words, draws):
    """Single-hop: a paragraph with the answer, and the nearest ones by BM25 that do not hold it."""
    ids, corpus, queries, gold = read_beir(folder / 'squad2')
    raw = [row['text'] for row in corpus]
    answers = {}
    for query in queries:
        truth = query['metadata']['ground_truth']
        if query['_id'] in gold and not truth['is_impossible']:
            answers.setdefault(gold[query['_id']][0], truth['answers'])
    texts = [sentences_with(text, words, answers.get(i), random.Random(i)) for i, text in enumerate(raw)]
    if words >= 100:
        index = Bm25(raw)
        texts = [joined(i, texts, index, random.Random(i), words) for i in range(len(raw))]
    index = Bm25(texts)
    questions, history = [], []
    for query in queries:
        if query['_id'] not in gold:
            continue
        right = gold[query['_id']][0]
        nearest = index.nearest(query['text'], but=[right])
        truth = query['metadata']['ground_truth']
        if truth['is_impossible']:
            history.append([right] + nearest[:4])
            continue
        wanted = [answer for answer in truth['answers'] if re.search('[a-z0-9]', answer.lower())]
        if not wanted or not holds(texts[right], wanted):
            continue
        wrong = [i for i in nearest[:60] if not holds(texts[i], wanted)]
        for draw in range(draws):
            questions.append(Question(f"{query['_id']}/{draw}", draw, ids[right], query['text'].strip(), wanted,
                                      [right] + wrong[4 * draw:4 * draw + 4]))
    return questions, history, texts, 1000 + words


def hotpot(folder, words, draws):
    """Multi-hop: the two paragraphs that the answer needs, and the nearest of the data set's own distractors."""
    ids, corpus, queries, gold = read_beir(folder / 'hotpotqa')
    at = {id: i for i, id in enumerate(ids)}
    raw = [row['title'] + ': ' + row['text'] for row in corpus]
    index = Bm25(raw)
    companions = {}
    for query in queries:
        context = [at[id] for id in query['metadata']['context']]
        for i in context:
            companions.setdefault(i, set()).update(context)
    if words < 100:
        right = {i for found in gold.values() for i in found}
        texts = [clip(text, 110 if i in right else words) for i, text in enumerate(raw)]
    else:
        texts = [joined(i, raw, index, random.Random(i), words, companions[i]) if i in companions else text
                 for i, text in enumerate(raw)]
    questions = []
    for query in queries:
        right = gold[query['_id']]
        wrong = sorted((at[id] for id in query['metadata']['context'] if at[id] not in right),
                       key=lambda i: -index.score(query['text'], i))
        for draw in range(draws):
            distractors = wrong[3 * draw:3 * draw + 3]
            if len(distractors) == 3:
                questions.append(Question(f"{query['_id']}/{draw}", draw, query['_id'], query['text'].strip(),
                                          [query['metadata']['answer']], right + distractors))
    return questions, None, texts, 2000 + words


def multihop_rag(folder, words):
    """Multi-hop over news: the two to four articles that the answer needs, filled up with the nearest by BM25."""
    ids, corpus, queries, gold = read_beir(folder / 'multihop-rag')
    texts = [f"{row['title']} ({row['metadata']['source']}, {row['metadata']['published_at'][:10]}): "
             + clip(row['text'], 110) for row in corpus]
    index = Bm25(texts)
    rng = random.Random(3000 + words)
    rng.shuffle(queries)
    questions, history = [], []
    for query in queries:
        right = gold.get(query['_id'], [])
        documents = (right + index.nearest(query['text'], but=right))[:DOCUMENTS]
        kind = query['metadata']['type']
        if kind == 'null_query' or not 2 <= len(right) <= 4 or len(questions) >= MULTIHOP_RAG_QUESTIONS:
            history.append(documents)
            continue
        questions.append(Question(query['_id'] + '/0', 0, ids[right[0]], query['text'].strip(),
                                  [query['metadata']['answer']], documents))
    return questions, history, texts, rng


SETS = {
    'squad-100': lambda folder: squad(folder, 85, 2),
    'hotpotqa-100': lambda folder: hotpot(folder, 85, 2),
    'multihop-rag-100': lambda folder: multihop_rag(folder, 75),
    'squad-250': lambda folder: squad(folder, 185, 2),
    'hotpotqa-250': lambda folder: hotpot(folder, 185, 2),
}
"""Sets by name and tokens of a document (about)."""


def finish(name, questions, history, texts, rng, encode):
    """Draws orders and sources. `history`: documents of questions that only fill the engine's cache, or None."""
    for question in questions:
        question.documents = list(question.retrieved)
        rng.shuffle(question.documents)
    questions.sort(key=lambda question: (question.draw, rng.random()))
    cache = SimulatedCache()
    for documents in history or []:
        documents = list(documents)
        rng.shuffle(documents)
        cache.serve(documents)
    for question in questions:
        order = list(range(DOCUMENTS))
        while order == list(range(DOCUMENTS)):
            rng.shuffle(order)
        question.other_order = [question.documents[i] for i in order]
        others = [other for other in questions
                  if other.cluster != question.cluster and not set(other.documents) & set(question.documents)]
        question.sources = []
        for _ in question.documents:
            other = rng.choice(others)
            question.sources.append(other.documents[:rng.randint(1, 4)])
        if history is None:
            question.mixed = [('graft', source) if rng.random() < MIXED_GRAFT_SHARE else ('new', [])
                              for source in question.sources]
        else:
            question.mixed = cache.serve(question.documents)
        question.prompt = encode(ask(question.text))
        question.answer = encode(min(question.answers, key=len))[:MAX_ANSWER_TOKENS]
    used = {i for question in questions for i in [
        *question.documents, *(j for source in question.sources for j in source),
        *(j for _, source in question.mixed for j in source)]}
    return QuestionSet(name, questions, {i: encode(texts[i].strip() + '\n\n') for i in sorted(used)})


class SimulatedCache:
    """What an engine with grafts holds: exact prefixes, and for each document the first exact place."""

    def __init__(self):
        self.places = {}
        self.prefixes = set()

    def serve(self, documents):
        """The exact prefix first, then grafts and new documents. Nothing behind a graft is exact."""
        operations, is_exact, before = [], True, ()
        for document in documents:
            if is_exact and before + (document,) in self.prefixes:
                operations.append(('exact', list(before)))
            elif document in self.places:
                operations.append(('graft', list(self.places[document])))
                is_exact = False
            else:
                operations.append(('new', []))
                if is_exact:
                    self.places[document] = before
                    self.prefixes.add(before + (document,))
            before += (document,)
        return operations


def read_beir(folder):
    rows = [[json.loads(line) for line in open(folder / file)] for file in ('corpus.jsonl', 'queries.jsonl')]
    ids = [row['_id'] for row in rows[0]]
    at = {id: i for i, id in enumerate(ids)}
    gold = collections.defaultdict(list)
    for line in open(folder / 'qrels/test.tsv'):
        query, document, *_ = line.split()
        if query != 'query-id':
            gold[query].append(at[document])
    return ids, *rows, gold


def holds(text, answers):
    return any(answer.lower() in text.lower() for answer in answers)


def sentences(text):
    return re.split(r'(?<=[.!?])\s+', text.strip())


def clip(text, words):
    """The first sentences, up to about `words` words."""
    kept, count = [], 0
    for sentence in sentences(text):
        if kept and count + len(sentence.split()) > words:
            break
        kept.append(sentence)
        count += len(sentence.split())
    return ' '.join(' '.join(kept).split()[:words + 25])


def sentences_with(text, words, answers, rng):
    """A run of whole sentences of about `words` words that holds an answer, where there is one."""
    parts = sentences(text)
    lengths = [len(part.split()) for part in parts]
    runs = []
    for start in range(len(parts)):
        end, count = start, 0
        while end < len(parts) and (end == start or count + lengths[end] <= words):
            count += lengths[end]
            end += 1
        if count >= words * .6 or (start == 0 and end == len(parts)):
            runs.append(' '.join(' '.join(parts[start:end]).split()[:words + 25]))
    good = [run for run in runs if answers and holds(run, answers)]
    return rng.choice(good) if good else (runs or [clip(text, words)])[0]


def joined(i, texts, index, rng, words, without=()):
    """Text `i` with its nearest texts, up to about `words` words, in random order."""
    parts, count = [texts[i]], len(texts[i].split())
    if count < words - 40:
        others = (j for j in range(len(texts)) if j != i and j not in without)
        for j in sorted(others, key=lambda j: -index.score(texts[i], j))[:6]:
            length = len(texts[j].split())
            if count + length <= words + 30:
                parts.append(texts[j])
                count += length
            if count >= words - 30:
                break
    rng.shuffle(parts)
    return ' '.join(' '.join(parts).split())


STOP_WORDS = set(
    'a an the of in on at to for and or is are was were be by with from that this which who whom what when where how '
    'did do does it its as not than'.split())


def terms(text):
    return [term for term in re.findall(r'[a-z0-9]+', text.lower()) if term not in STOP_WORDS]


class Bm25:
    def __init__(self, texts):
        self.counts = [collections.Counter(terms(text)) for text in texts]
        self.lengths = [sum(count.values()) for count in self.counts]
        self.mean = sum(self.lengths) / len(self.lengths)
        frequency = collections.Counter(term for count in self.counts for term in count)
        self.idf = {term: math.log(1 + (len(texts) - n + .5) / (n + .5)) for term, n in frequency.items()}

    def score(self, query, i):
        count = self.counts[i]
        length = .25 + .75 * self.lengths[i] / self.mean
        return sum(self.idf.get(term, 0) * count[term] * 2.2 / (count[term] + 1.2 * length)
                   for term in set(terms(query)) if term in count)

    def nearest(self, query, but):
        scores = {i: self.score(query, i) for i in range(len(self.counts)) if i not in but}
        return sorted(scores, key=lambda i: -scores[i])

"""Synthetic grounded question answering: fictional entities, facts about them in documents, questions about the facts.

Every entity, value, document id and order is random, so the only way to answer is to read the prompt.
"""
import functools
import glob
import os
import random
import re

# What names are made of: syllables of onset, vowel and coda.
ONSETS = ['v', 't', 'k', 'm', 'br', 's', 'dr', 'l', 'n', 'z', 'p', 'gr', 'th', 'f', 'h', 'r', 'b', 'qu', 'st', 'j', 'c', 'd', 'w', 'tr', 'x']
VOWELS = ['a', 'e', 'i', 'o', 'u', 'ai', 'ea', 'io', 'ou', 'y']
CODAS = ['n', 'r', 'l', 's', '', '', '', 'm', 'k', 'th', 'x', 'nd', 'rt', 'v']

MONTHS = 'January February March April May June July August September October November December'.split()
COLOURS = 'red blue green white black amber violet silver golden grey teal orange'.split()
MATERIALS = 'steel oak granite copper glass cedar marble bronze linen slate ceramic carbon'.split()


def syllable(r):
    return r.choice(ONSETS) + r.choice(VOWELS) + r.choice(CODAS)


def name(r):
    """An invented name: one word, two words, or a word and a model number."""
    word = ''.join(syllable(r) for _ in range(r.choice((2, 2, 3)))).capitalize()
    kind = r.random()
    if kind < .15:
        return word + ' ' + ''.join(syllable(r) for _ in range(2)).capitalize()
    if kind < .25:
        return word + ' ' + r.choice('XZQR') + str(r.randint(1, 9))
    return word


def quantity(unit, low, high):
    return lambda r: f'{r.randint(low, high)} {unit}'


def year(r):
    return str(r.randint(1400, 2090))


def pick(values):
    return lambda r: r.choice(values)


def colour_and_material(r):
    return r.choice(COLOURS) + ' ' + r.choice(MATERIALS)


# attribute -> what invents its value; the order matters to the seeded almanac
ATTRIBUTES = {
    'weight': quantity('kg', 2, 990), 'height': quantity('m', 2, 990), 'length': quantity('km', 2, 990),
    'capacity': quantity('litres', 2, 990), 'price': quantity('crowns', 2, 990), 'population': quantity('thousand', 2, 990),
    'range': quantity('km', 2, 990), 'warranty': quantity('months', 3, 96), 'speed': quantity('knots', 2, 190),
    'depth': quantity('fathoms', 2, 990), 'power': quantity('watts', 2, 990), 'age': quantity('years', 2, 900),
    'area': quantity('acres', 2, 990), 'temperature': quantity('degrees', 2, 990), 'port count': lambda r: str(r.randint(2, 96)),
    'colour': pick(COLOURS), 'material': pick(MATERIALS), 'founder': name, 'capital': name, 'maker': name, 'owner': name,
    'designer': name, 'captain': name, 'rival': name, 'birthplace': name, 'release year': year, 'founding year': year,
    'opening month': pick(MONTHS), 'harvest month': pick(MONTHS), 'code name': name, 'motto': colour_and_material,
    'emblem': colour_and_material, 'language': name, 'currency': name, 'main export': pick(MATERIALS), 'patron': name,
}
ATTRIBUTE_NAMES = list(ATTRIBUTES)
# Attributes whose values look alike: only the attribute's name tells the right value of an entity from its others.
ALIKE = [
    [a for a in ATTRIBUTE_NAMES if ATTRIBUTES[a] is name],
    ['length', 'range', 'release year', 'founding year', 'opening month', 'harvest month', 'motto', 'emblem', 'material', 'main export', 'port count'],
]

FACTS = ['The {a} of {e} is {v}.', '{e} has a {a} of {v}.', 'The {a} of {e} is {v}.', "{e}'s {a} is {v}.",
         'The {a} recorded for {e} is {v}.', 'For {e}, the {a} is {v}.']
QUESTIONS = ['What is the {a} of {e}?', 'What is the {a} of {e}?', 'Tell me the {a} of {e}.', 'Which {a} does {e} have?',
             "What is {e}'s {a}?", '{a} of {e}?']
FILLERS = ['It is described in the register of the guild.', 'Visitors often ask about it.', 'The archive keeps a copy of this entry.',
           'This entry was checked twice.', 'More is known from older sources.', 'The entry is part of the almanac.',
           'Several travellers wrote about it.', 'It is mentioned in many letters.', 'The details below come from the registry.',
           'No other source disagrees.']
SYSTEMS = ['Answer from the documents.', 'You are a helpful assistant. Answer the question using the documents.',
           'Use only the documents to answer. Be brief.', 'You answer questions from the given context.',
           'Answer the question using only the provided documents.', 'You are a helpful assistant.',
           'Answer the question using only the provided documents. Answer in as few words as possible.']
UNKNOWN = 'The documents do not say.'

# What the default prompts of frameworks write around documents and question: LlamaIndex, LangChain's «stuff» chain and its
# history-aware chains, Haystack, and plain words.
FRAMES = ['Context information is below.\n---------------------\n{d}\n---------------------\nGiven the context information and not prior knowledge, answer the query.\nQuery: {q}\nAnswer:',
          'Context information is below.\n---------------------\n{d}\n---------------------\nGiven the context information, answer the query.\nQuery: {q}\nAnswer: ',
          'Context information from multiple sources is below.\n---------------------\n{d}\n---------------------\nGiven the information from multiple sources and not prior knowledge, answer the query.\nQuery: {q}\nAnswer:',
          "Use the following pieces of context to answer the question at the end. If you don't know the answer, just say that you don't know, don't try to make up an answer.\n\n{d}\n\nQuestion: {q}\nHelpful Answer:",
          'Answer the question based only on the following context:\n{d}\n\nQuestion: {q}',
          'Given the following information, answer the question.\n\nContext:\n{d}\n\nQuestion: {q}\nAnswer:',
          'Context:\n{d}\n\nQuestion: {q}', 'Documents:\n\n{d}\n\n{q}', 'Sources:\n{d}\n\nQuestion: {q}\nAnswer:']
# What people write around a question.
BEFORE = ['Please tell me: ', 'Hello. ', 'Quick question: ', 'In short: ', 'Now another one. ', 'Thank you. ', 'I have a question. ']
BEHIND = [' Please be brief.', ' Thanks!', ' Answer briefly.', ' One more thing: be exact.', ' Thank you.']

# Questions that no fact answers, about words of ordinary prose: the model is to say so and not to invent.
OTHER_QUESTIONS = ['How do I {x}?', 'How do I {x} with {y}?', 'Why is {x}?', 'What does {x} mean?', 'When should I use {x}?', 'How does {x} work?',
                   'What are the limits of {x}?', 'Is {x} supported?', 'Can I use {x} with {y}?', 'Where is {x} kept?', 'What happens to {x}?',
                   'Who uses {x}?', 'Explain {x}.', 'What is {x}?', 'How many {x} are there?', 'Do I need {x} for {y}?', 'How fast is {x}?',
                   'What must I know about {x}?', 'Tell me about {x}.', 'Which {x} are there?']

# In generated text these two characters stand for the special tokens <|im_start|> and <|im_end|>.
START, END = '\x01', '\x02'


def document_id(r):
    kind = r.random()
    if kind < .4:
        return ''.join(r.choice('abcdefghjkmnpqrstuvwxyz23456789') for _ in range(r.choice((4, 6, 8))))
    if kind < .6:
        return 'd' + str(r.randint(1, 999))
    if kind < .8:
        return 'doc_%04d' % r.randint(0, 9999)
    return name(r).lower().replace(' ', '-')


class Document:
    """An entity with facts, written out as sentences in random wording and sprinkled with sentences that say nothing."""

    def __init__(self, r, facts, entity=None, easy=0., attributes=ATTRIBUTE_NAMES):
        self.entity = entity or name(r)
        self.id = document_id(r)
        self.facts = [(a, ATTRIBUTES[a](r)) for a in r.sample(attributes, facts)]
        sentences = [(FACTS[0] if r.random() < easy else r.choice(FACTS)).format(a=a, e=self.entity, v=v) for a, v in self.facts]
        for _ in range(r.choice((0, 0, 1, 2))):
            sentences.insert(r.randint(0, len(sentences)), r.choice(FILLERS))
        self.text = ' '.join(sentences)

    def render(self, style):
        if style == 0:
            return f'<document id="{self.id}" title="{self.entity}">\n{self.text}\n</document>\n'
        if style == 1:
            return f'[{self.id}] {self.entity}\n{self.text}\n\n'
        if style == 2:
            return f'[Doc_{self.id}] {self.text}\n\n'
        if style == 3:
            return f'## {self.entity}\n{self.text}\n\n'
        if style == 4:
            return f'<document id="{self.id}">\n{self.text}\n</document>\n'
        if style == 5:
            return f'Document {self.id}: {self.text}\n\n'
        if style == 6:
            return f'[{self.id}]\n{self.text}\n\n'
        if style == 7:
            return f'## {self.id}\n{self.text}\n\n'
        if style == 8:
            return f'{self.text}\n'
        if style == 9:
            return f'file_path: docs/{self.id}.md\n\n{self.text}\n\n'
        return f'{self.text}\n\n'


@functools.lru_cache(None)
def prose():
    """Paragraphs of ordinary English, with their pages' titles: the documentation of this repository."""
    out = []
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs')
    for path in sorted(glob.glob(os.path.join(folder, '**', '*.md'), recursive=True)):
        if 'node_modules' in path or 'reference' in path:
            continue
        with open(path, encoding='utf-8') as f:
            text = re.sub(r'```.*?```', '', f.read(), flags=re.S)
        title = next((line[2:] for line in text.splitlines() if line.startswith('# ')), os.path.basename(path))
        for part in text.split('\n\n'):
            part = ' '.join(part.split())
            if 60 <= len(part) <= 900 and part[0] not in '|#<!' and part.isascii():
                out.append((title, part))
    return out


def surrounded(r, question):
    """The question with words before or behind it that change nothing."""
    if r.random() < .4:
        return r.choice(BEFORE) + question
    if r.random() < .5:
        return question + r.choice(BEHIND)
    mark = r.choice((document_id(r), str(r.randint(1, 9999)), 'request %d' % r.randint(1, 999), ''.join(r.choice('abcdefghijklmnopqrstuvwxyz') for _ in range(r.randint(1, 6)))))
    return question + r.choice((' (%s)', ' [%s]', ' #%s')) % mark


def words(r):
    """A few words of prose that stand side by side."""
    found = re.findall(r"[A-Za-z][A-Za-z'-]*", r.choice(prose())[1]) or ['it']
    at = r.randrange(len(found))
    return ' '.join(found[at:at + r.choice((1, 1, 2, 3, 4))])


def other_question(r):
    return r.choice(OTHER_QUESTIONS).format(x=words(r), y=words(r))


class Prose(Document):
    """A paragraph of ordinary English: it states nothing that is asked."""

    def __init__(self, r):
        self.entity, self.text = r.choice(prose())
        self.id, self.facts = document_id(r), []


def chains(r, documents):
    """The order as Warmpath's hints state it: chains of documents, of which only those are named that moved."""
    names = ['[' + d.id + ']' for d in documents]
    if len(names) < 4 or r.random() < .5:
        return ' > '.join(names)
    cut = r.randint(2, len(names) - 1)
    return ', '.join(' > '.join(part) for part in (names[:cut], names[cut:]) if len(part) > 1)


def sample(r, documents, facts, questions, turns=1, easy=0., distinct=False, alike=0., unknown=.06, varied=False, other=0., frames=0.):
    """One prompt with its answers -> list of (text, is_answer).

    documents: how many a turn; facts: at most so many a document; questions: how many a turn; turns: each brings fresh
    documents; easy: share of plain wordings, and of plain completions instead of chat questions; distinct: ask no fact
    twice (then earlier answers in the prompt never give a later one away); alike: share of documents whose facts have
    values that look alike; unknown: share of questions whose answer may be in no document; varied: more ways of writing
    documents, sometimes in the system message or with no system message at all; other: share of prompts whose documents
    are ordinary prose, and of questions of another kind beside facts; frames: share of turns in a framework's default prompt,
    and, halved, of questions with words around them.
    """
    out, seen, asked = [], [], set()
    is_prose = r.random() < other
    style = r.randint(0, 10 if varied else 5)
    place = r.random() if varied and turns == 1 else 1.
    if place >= .3:
        out.append((START + 'system\n' + r.choice(SYSTEMS) + END + '\n', False))
    for _ in range(turns):
        docs = []
        for _ in range(documents):
            if is_prose:
                docs.append(Prose(r))
                continue
            n = r.randint(max(2, facts - 2), facts)
            docs.append(Document(r, n, None, easy, r.choice(ALIKE) if alike and r.random() < alike else ATTRIBUTE_NAMES))
        r.shuffle(docs)
        body, hint = ''.join(d.render(style) for d in docs), ''
        if r.random() < .3:
            order = docs[:]
            r.shuffle(order)
            hint = 'In order of relevance: ' + chains(r, order) + '.\n'
        if seen and r.random() < .5:
            repeated = r.sample(seen, min(len(seen), r.randint(1, 3)))
            hint = 'Given earlier in this conversation: ' + ', '.join('[' + d.id + ']' for d in repeated) + '.\n' + hint
        seen += docs
        if place < .15:  # the documents at the end of the system message
            out.append((START + 'system\n' + r.choice(SYSTEMS) + '\n\n' + body + END + '\n', False))
            body = ''
        layout, first, framed = r.random(), True, r.random() < frames
        for _ in range(questions):
            d = r.choice(docs if r.random() < .7 or len(seen) == len(docs) else seen)
            question = r.choice(QUESTIONS)
            if (is_prose and r.random() < .8) or r.random() < other / 2:
                a, v, question = '', UNKNOWN, other_question(r)
            elif is_prose:
                a, v = r.choice(ATTRIBUTE_NAMES), UNKNOWN
            elif r.random() < unknown * (1 - easy):
                a = r.choice(ATTRIBUTE_NAMES)
                v = dict(d.facts).get(a, UNKNOWN)
            else:
                a, v = r.choice(d.facts)
            if distinct:
                if a and (d.entity, a) in asked:
                    continue
                asked.add((d.entity, a))
            if r.random() < easy:  # a plain completion right after the documents: the shortest way to learn copying
                if first:
                    out.append((START + 'user\n' + body, False))
                    first = False
                out.append((f'The {a} of {d.entity} is', False))
                out.append((f' {v}.\n', True))
                continue
            question = question.format(a=a, e=name(r) if is_prose else d.entity) if a else question
            if r.random() < frames / 2:
                question = surrounded(r, question)
            if not first:
                out.append((START + 'user\n' + question + END + '\n', False))
            elif layout >= .5 and body and not framed:  # the documents in a message of their own
                out.append((START + 'user\n' + body + END + '\n' + START + 'user\n' + hint + question + END + '\n', False))
            elif framed and body:
                inside = hint and r.random() < .5  # a hint stands behind the documents or before everything
                text = r.choice(FRAMES).format(d=body.strip() + ('\n' + hint if inside else ''), q=question)
                out.append((START + 'user\n' + ('' if inside else hint) + text + END + '\n', False))
            elif r.random() < .5:
                out.append((START + 'user\n' + body + hint + '\nQuestion: ' + question + END + '\n', False))
            else:
                out.append((START + 'user\n' + body + hint + question + END + '\n', False))
            first = False
            out += [(START + 'assistant\n', False), (' ' + v + END, True), ('\n', False)]
    return out


if __name__ == '__main__':
    print(''.join(t for t, _ in sample(random.Random(), 3, 4, 3)).replace(START, '<|im_start|>').replace(END, '<|im_end|>'))

"""Prints the tables of files that run.py wrote.

    python3 analyse.py FILE.jsonl ...

Intervals: 95 %, paired, bootstrap over clusters (questions of one source paragraph, draws of one question).
Sign tests are exact, over means of clusters. A graft is worse than mere reordering where an interval excludes zero.
"""
import collections
import json
import math
import re
import sys

import numpy as np

RESAMPLES = 4000
MIN_QUESTIONS = 5
HEADINGS = ['documents', 'EM', 'F1', 'nats', 'F1 − full', 'F1 − reordered', 'nats − full', 'nats − reordered',
            'clusters worse/better (p)', 'same text as full', 'beside reordering']
"""nats: what the right answer costs (negative log-likelihood)."""
TABLES = [
    ('single-hop, documents of 100 tokens', r'squad-100:'),
    ('single-hop, documents of 250 tokens', r'squad-250:'),
    ('single-hop, all with conversations', r'(conversations-)?squad-'),
    ('multi-hop, HotpotQA, 100 tokens', r'hotpotqa-100:'),
    ('multi-hop, HotpotQA, 250 tokens', r'hotpotqa-250:'),
    ('multi-hop, MultiHop-RAG, 100 tokens', r'multihop-rag-100:'),
    ('multi-hop, all with conversations', r'(conversations-)?(hotpotqa|multihop-rag)-'),
    ('conversations, SQuAD, turns 2 and 3', r'conversations-squad-100 [12]'),
    ('conversations, HotpotQA, turns 2 and 3', r'conversations-hotpotqa-100 [12]'),
]
"""Title, and which cells (with the turn behind them) it has."""


def main():
    answers = {}
    for path in sys.argv[1:]:
        for line in open(path):
            answer = json.loads(line)
            answers[answer['model'], answer['cell'], answer['id']] = answer
    for answer in answers.values():
        dataset = answer['cell'].removeprefix('conversations-').split('-')[0]
        answer['cluster'] = (dataset, answer['cluster'])
        for arm in answer['arms'].values():
            first_line = arm['text'].split('\n')[0].strip()
            arm['em'] = 100 * max(normal(first_line) == normal(right) for right in answer['answers'])
            arm['f1'] = 100 * max(f1(first_line, right) for right in answer['answers'])
    for model in sorted({model for model, _, _ in answers}):
        for title, cells in TABLES:
            chosen = [answer for answer in answers.values() if answer['model'] == model
                      and re.match(cells, f"{answer['cell']} {answer['turn']}")]
            if len(chosen) >= MIN_QUESTIONS:
                print_table(f'{model}: {title}', chosen)


def print_table(title, answers):
    clusters = [answer['cluster'] for answer in answers]
    tokens = np.mean([answer['document_tokens'] for answer in answers])
    share = np.mean([answer['mixed_share'] for answer in answers])
    print(f'\n## {title}\n\n{len(answers)} answers, {len({answer["question"] for answer in answers})} questions, '
          f'{len(set(clusters))} clusters; {tokens:.0f} tokens of documents; `mixed` grafts {100 * share:.0f} %.\n')
    print(row(HEADINGS))
    print(row(['---'] + ['--:'] * (len(HEADINGS) - 2) + ['---']))
    for arm in answers[0]['arms']:
        def mean(measure):
            return np.mean([answer['arms'][arm][measure] for answer in answers])

        def difference(measure, other):
            return [answer['arms'][arm][measure] - answer['arms'][other][measure] for answer in answers]

        def interval(measure, other):
            return bootstrap(difference(measure, other), clusters)

        same = np.mean([answer['arms'][arm]['text'] == answer['arms']['full']['text'] for answer in answers])
        cells = [f'`{arm}`', f'{mean("em"):.1f}', f'{mean("f1"):.1f}', f'{mean("nll"):.2f}']
        cells += [shown(interval('f1', other), 1) if arm != other else '' for other in ('full', 'reordered')]
        cells += [shown(interval('nll', other), 2) if arm != other else '' for other in ('full', 'reordered')]
        cells += [signs(difference('nll', 'reordered'), clusters) if arm != 'reordered' else '', f'{100 * same:.0f} %']
        is_graft = arm not in ('none', 'full', 'reordered')
        cells.append(verdict(interval('f1', 'reordered'), interval('nll', 'reordered')) if is_graft else '')
        print(row(cells))


def verdict(f1_difference, nll_difference):
    """More F1 is better, more nats are worse."""
    found = []
    for name, (_, low, high) in (('F1', f1_difference), ('likelihood', [-x for x in nll_difference])):
        low, high = min(low, high), max(low, high)
        if high < 0 or low > 0:
            found.append(f'{"worse" if high < 0 else "better"} by {name}')
    return ', '.join(found) or 'not told apart'


def bootstrap(values, clusters):
    """The mean, and 2.5 % and 97.5 % of the means of clusters drawn with replacement."""
    sums = collections.defaultdict(lambda: [0., 0])
    for value, cluster in zip(values, clusters):
        sums[cluster][0] += value
        sums[cluster][1] += 1
    totals, counts = np.array(list(sums.values())).T
    drawn = np.random.default_rng(1).integers(0, len(totals), (RESAMPLES, len(totals)))
    means = totals[drawn].sum(1) / counts[drawn].sum(1)
    return [float(np.mean(values)), float(np.quantile(means, .025)), float(np.quantile(means, .975))]


def signs(values, clusters):
    means = collections.defaultdict(list)
    for value, cluster in zip(values, clusters):
        means[cluster].append(value)
    means = [sum(group) / len(group) for group in means.values()]
    worse, better = sum(mean > 1e-9 for mean in means), sum(mean < -1e-9 for mean in means)
    count, least = worse + better, min(worse, better)
    p = min(1., 2 * sum(math.comb(count, i) for i in range(least + 1)) / 2 ** count)
    return f'{worse}/{better} ({p:.3f})'


def shown(interval, digits):
    mean, low, high = (f'{value:+.{digits}f}' for value in interval)
    return f'{mean} [{low}, {high}]'


def row(cells):
    return '| ' + ' | '.join(cells) + ' |'


def normal(text):
    return re.sub(r'\b(a|an|the)\b', ' ', re.sub(r'[^\w\s]', ' ', text.lower())).split()


def f1(text, right):
    """F1 of the words, without articles and punctuation."""
    given, wanted = normal(text), normal(right)
    common = sum((collections.Counter(given) & collections.Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted)) if common else 0.


if __name__ == '__main__':
    main()

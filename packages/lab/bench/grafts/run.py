"""Measures answers over grafted documents: cells that an earlier prompt computed behind other documents.

    python3 run.py --model FILE.gguf --data FOLDER --out FILE.jsonl [--cells A,B] [--seconds N] [--questions N]
    python3 run.py --model FILE.gguf --data FOLDER --check [--cells A,B] [--questions N]

Writes one line a question and goes on where the file ends. `--check` compares cells instead: the rotation with keys
that were computed at the new place, and a graft that stays at its place with the original.
Needs torch, numpy, gguf, tokenizers. Uses a GPU where there is one. A CPU takes minutes a question.
"""
import argparse
import json
import os
import time

import torch

import questions as q
from model import Model

ARMS = ['none', 'full', 'reordered', 'graft', 'graft-8', 'graft-32', 'mixed', 'alone', 'one']
"""What is done with the documents:
none: left out. full: computed in the order of the prompt. reordered: computed in another order.
graft: all grafted. graft-8, graft-32: the same, their first tokens computed again.
mixed: as an engine would serve a stream of questions: exact prefix, then grafts, then new documents.
alone: all grafted, computed behind the system prompt only. one: the first document grafted, the others computed.
"""
CHECK_ARMS = ['full', 'graft', 'same-place']
CELLS = ['squad-100:0', 'hotpotqa-100:0', 'multihop-rag-100:0', 'squad-250:0', 'hotpotqa-250:0',
         'conversations-squad-100', 'conversations-hotpotqa-100',
         'squad-100:1', 'hotpotqa-100:1', 'squad-250:1', 'hotpotqa-250:1']
"""A set of questions and which draw of distractors, or conversations of three turns. The most important first."""
CONVERSATIONS = 'conversations-'
MAX_NEW_TOKENS = 24
MAX_BATCH = 32
SHORT_TOKENS = 32
CPU_TOKENS_AT_ONCE = 2048
CPU_CELL_BYTES = 600_000_000
GPU_TOKENS_AT_ONCE = 49_152
GPU_BYTES_PER_TOKEN = 800_000


def main():
    parser = argparse.ArgumentParser(description='Measures answers over grafted documents.')
    parser.add_argument('--model', required=True, help='a Qwen2 model, GGUF')
    parser.add_argument('--data', required=True, help='folder of the BEIR folders squad2, hotpotqa and multihop-rag')
    parser.add_argument('--out', help='JSONL; a run goes on where it ends')
    parser.add_argument('--cells', default=','.join(CELLS), help='default: %(default)s')
    parser.add_argument('--seconds', type=float, default=float('inf'), help='stop before a batch that would end later')
    parser.add_argument('--questions', type=int, help='the first N of each cell')
    parser.add_argument('--check', action='store_true', help='compare cells, write no answers')
    options = parser.parse_args()
    if not options.out and not options.check:
        parser.error('--out names the file to write, or --check compares cells only')
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.enable_cudnn_sdp(False)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    run = Run(Model(options.model, device), CHECK_ARMS if options.check else ARMS)
    name = os.path.basename(options.model).removesuffix('.gguf')
    done = set() if options.check else read_done(options.out)
    began, longest = time.time(), 0
    with open(os.devnull if options.check else options.out, 'a') as out:
        for cell in options.cells.split(','):
            run.questions, items = read_cell(cell, options.data, run.model.encode)
            items = [turns for turns in items[:options.questions] if (name, cell, turns[-1].id) not in done]
            while items:
                if time.time() - began + longest > options.seconds:
                    print(f'{options.seconds:.0f} seconds are over: {len(items)} of {cell} are left')
                    return
                started = time.time()
                batch, items = run.split_batch(items)
                lines = [json.dumps({'model': name, 'cell': cell, **answer}) + '\n' for answer in run.answers(batch)]
                out.write(''.join(lines))
                out.flush()
                longest = time.time() - started
                print(f'{cell}: {len(batch)} measured in {longest:.1f} s, {len(items)} left', flush=True)


def read_done(path):
    if not os.path.exists(path):
        return set()
    lines = [json.loads(line) for line in open(path)]
    return {(line['model'], line['cell'], line['id']) for line in lines}


def read_cell(cell, folder, encode):
    """The questions of a cell, as lists of turns."""
    name, _, draw = cell.removeprefix(CONVERSATIONS).partition(':')
    if name not in q.SETS:
        raise SystemExit(f'--cells: no cell {cell}. There are {", ".join(CELLS)}.')
    found = q.read_set(name, folder, encode)
    if cell.startswith(CONVERSATIONS):
        return found, q.conversations(found.questions)
    return found, [[question] for question in found.questions if not draw or question.draw == int(draw)]


def placements(question, arm, turn):
    """For each document of the prompt: the document, its source or None where it is computed, tokens computed again."""
    documents = question.documents
    if arm == 'none':
        return []
    if arm == 'full':
        return [(document, None, 0) for document in documents]
    if arm == 'reordered':
        return [(document, None, 0) for document in question.other_order]
    if arm == 'alone':
        return [(document, (), 0) for document in documents]
    if arm == 'one':
        return [(document, tuple(question.sources[0]) if i == 0 else None, 0) for i, document in enumerate(documents)]
    if arm == 'same-place':
        return [(document, tuple(documents[:i]), 0) for i, document in enumerate(documents)]
    if arm == 'mixed':
        return [(document, None if kind == 'new' or (kind == 'exact' and turn == 0) else tuple(source), 0)
                for document, (kind, source) in zip(documents, question.mixed)]
    again = int(arm.removeprefix('graft').removeprefix('-') or 0)
    return [(document, tuple(source), again) for document, source in zip(documents, question.sources)]


class Run:
    """All arms of a batch of questions at once, a row of cells for each."""

    def __init__(self, model, arms):
        self.model = model
        self.arms = arms
        self.questions = None
        self.device = model.device
        self.tokens_at_once, self.cell_bytes = CPU_TOKENS_AT_ONCE, CPU_CELL_BYTES
        if self.device != 'cpu':
            free, _ = torch.cuda.mem_get_info()
            self.tokens_at_once = min(GPU_TOKENS_AT_ONCE, free // 2 // GPU_BYTES_PER_TOKEN)
            self.cell_bytes = free // 3
        self.next_turn = model.encode(q.NEXT_TURN)
        system = model.encode(q.SYSTEM)
        self.system_length = len(system)
        cells = model.cells(1, len(system))
        self.forward(cells, [(0, system, 0)])
        self.system = [part[:, :, :len(system)].clone() for part in cells]

    def split_batch(self, items):
        """The first items, as many as memory holds, and the others."""
        count = 1
        while count < min(MAX_BATCH, len(items)):
            length = max(self.length(turns) for turns in items[:count + 1])
            if (count + 1) * len(self.arms) * length * self.model.bytes_per_cell > self.cell_bytes:
                break
            count += 1
        return items[:count], items[count:]

    def length(self, turns):
        """Tokens of a whole conversation."""
        return self.system_length + sum(
            sum(len(self.tokens(document)) for document in question.documents) + len(question.prompt)
            + len(question.answer) + len(self.next_turn) + MAX_NEW_TOKENS for question in turns)

    def tokens(self, document):
        return self.questions.tokens[document]

    def cells(self, rows, length):
        """Cells that begin with the system prompt."""
        cells = self.model.cells(rows, length)
        for part, system in zip(cells, self.system):
            part[:, :, :self.system_length] = system
        return cells

    def forward(self, cells, work):
        """Computes (row, tokens, first position) of each piece of work, as hidden states [work, T, width]."""
        count = max(len(tokens) for _, tokens, _ in work)
        tokens = [list(tokens) + [0] * (count - len(tokens)) for _, tokens, _ in work]
        positions = [[*range(at, at + len(tokens))] + [-1] * (count - len(tokens)) for _, tokens, at in work]
        return self.model.forward(cells, self.tensor([row for row, _, _ in work]), self.tensor(tokens),
                                  self.tensor(positions))

    def tensor(self, values):
        return torch.tensor(values, device=self.device)

    def answers(self, items):
        """The measured answers of all turns, or nothing when cells are only compared."""
        rows = [(turns, arm) for turns in items for arm in self.arms]
        cells = self.cells(len(rows), max(self.length(turns) for turns in items))
        ends = [self.system_length] * len(rows)
        for turn in range(len(items[0])):
            asked = [(turns[turn], arm) for turns, arm in rows]
            starts = ends
            ends = self.place(cells, asked, starts, turn)
            if self.arms == CHECK_ARMS:
                self.compare(cells, asked, starts, ends)
                return
            hidden = self.forward(cells, [(row, question.prompt + question.answer[:-1], ends[row])
                                          for row, (question, _) in enumerate(asked)])
            likelihoods = [self.likelihoods(hidden, row, question) for row, (question, _) in enumerate(asked)]
            del hidden
            ends = [end + len(question.prompt) for end, (question, _) in zip(ends, asked)]
            texts = self.generate(cells, ends, [first for _, first in likelihoods])
            for i in range(0, len(rows), len(self.arms)):
                full = likelihoods[i + self.arms.index('full')][1]
                yield self.line(asked[i][0], turn, {
                    arm: {'nll': round(nll, 4), 'first_kl': round(divergence(full, first), 6), 'text': text}
                    for arm, (nll, first), text in zip(self.arms, likelihoods[i:], texts[i:])})
            if turn + 1 < len(items[0]):
                more = [question.answer + self.next_turn for question, _ in asked]
                self.forward(cells, [(row, more[row], ends[row]) for row in range(len(rows))])
                ends = [end + len(tokens) for end, tokens in zip(ends, more)]

    def line(self, question, turn, arms):
        tokens = [len(self.tokens(document)) for document in question.documents]
        grafted = [n for n, (_, source, _) in zip(tokens, placements(question, 'mixed', turn)) if source is not None]
        return {'id': question.id, 'turn': turn, 'cluster': question.cluster, 'question': question.text,
                'answers': question.answers, 'document_tokens': sum(tokens),
                'mixed_share': round(sum(grafted) / sum(tokens), 3), 'arms': arms}

    def place(self, cells, asked, starts, turn):
        """Grafts or computes the documents of each row, from left to right. Returns where they end."""
        plans = [placements(question, arm, turn) for question, arm in asked]
        sources = self.compute_sources({(source, document) for plan in plans for document, source, _ in plan
                                        if source is not None})
        ends = list(starts)
        work = [[] for _ in range(q.DOCUMENTS)]
        for row, plan in enumerate(plans):
            for i, (document, source, again) in enumerate(plan):
                tokens, at = self.tokens(document), ends[row]
                ends[row] += len(tokens)
                if source is None:
                    work[i].append((row, tokens, at))
                    continue
                keys, values, position = sources[source, document]
                cells[0][:, row, at:ends[row]] = self.model.moved(keys, at - position)
                cells[1][:, row, at:ends[row]] = values
                if again:
                    work[i].append((row, tokens[:again], at))
        for column in work:
            for group in ([piece for piece in column if len(piece[1]) <= SHORT_TOKENS],
                          [piece for piece in column if len(piece[1]) > SHORT_TOKENS]):
                for pieces in self.fitting(group, lambda piece: len(piece[1])):
                    self.forward(cells, pieces)
        return ends

    def compute_sources(self, wanted):
        """Cells and position of each (documents before it, document), as another question's exact prompt has them."""
        found = {}

        def prompt(job):
            return [token for document in (*job[0], job[1]) for token in self.tokens(document)]

        for jobs in self.fitting(sorted(wanted), lambda job: len(prompt(job))):
            prompts = [prompt(job) for job in jobs]
            cells = self.cells(len(jobs), self.system_length + max(len(tokens) for tokens in prompts))
            self.forward(cells, [(row, tokens, self.system_length) for row, tokens in enumerate(prompts)])
            for row, ((before, document), tokens) in enumerate(zip(jobs, prompts)):
                end = self.system_length + len(tokens)
                start = end - len(self.tokens(document))
                keys, values = (part[:, row, start:end].clone() for part in cells)
                found[before, document] = (keys, values, start)
        return found

    def fitting(self, jobs, size):
        """Groups of jobs of about one size, each no larger than is computed at once."""
        jobs = sorted(jobs, key=size)
        while jobs:
            count = 1
            while count < len(jobs) and (count + 1) * size(jobs[count]) <= self.tokens_at_once:
                count += 1
            yield jobs[:count]
            jobs = jobs[count:]

    def likelihoods(self, hidden, row, question):
        """Nats that the right answer costs, and the log-probabilities of its first token."""
        start = len(question.prompt) - 1
        logs = self.model.logits(hidden[row, start:start + len(question.answer)]).log_softmax(-1)
        return -logs.gather(-1, self.tensor(question.answer)[:, None]).sum().item(), logs[0].clone()

    def generate(self, cells, ends, first):
        """Greedy answers of all rows. Their cells are behind the question, where the right answer overwrites them."""
        tokens = torch.stack([logs.argmax() for logs in first])
        found = [tokens]
        over = torch.isin(tokens, self.tensor(self.model.ends))
        at = self.tensor(ends)
        while len(found) < MAX_NEW_TOKENS and not over.all():
            hidden = self.model.forward(cells, None, tokens[:, None], (at + len(found) - 1)[:, None])
            tokens = self.model.logits(hidden[:, 0]).argmax(-1)
            found.append(tokens)
            over |= torch.isin(tokens, self.tensor(self.model.ends))
        return [self.text(row) for row in torch.stack(found, 1).tolist()]

    def text(self, tokens):
        end = next((i for i, token in enumerate(tokens) if token in self.model.ends), len(tokens))
        return self.model.tokenizer.decode(tokens[:end])

    def compare(self, cells, asked, starts, ends):
        """Prints how far grafted cells are from computed ones. Layer 0 differs by rounding only."""
        for row in range(0, len(asked), len(self.arms)):
            span = slice(starts[row], ends[row])
            (keys, values), grafted, same = (
                [part[:, row + self.arms.index(arm), span].float() for part in cells] for arm in CHECK_ARMS)
            a, b = keys[0].chunk(2, -1)
            pair = torch.cat([a.hypot(b)] * 2, -1).clamp(min=2. ** -14)
            unit = 2. ** (pair.log2().floor() - 10)
            distance = (keys[0] - grafted[0][0]).abs()
            print(f'{asked[row][0].id}: rotation, layer 0: keys differ by {distance.max().item():g} '
                  f'({(distance / unit).max().item():.2f} units of f16), '
                  f'values by {(values[0] - grafted[1][0]).abs().max().item():g}; '
                  f'same place, all layers: keys by {(keys - same[0]).abs().max().item():g}, '
                  f'values by {(values - same[1]).abs().max().item():g}', flush=True)


def divergence(full, other):
    """Kullback-Leibler divergence of two distributions, in nats."""
    return (full.exp() * (full - other)).sum().item()


if __name__ == '__main__':
    main()

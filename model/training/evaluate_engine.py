"""Asks a running engine (anything with OpenAI's chat completions) the almanac's questions, each with its document among
others drawn at random, and counts the answers that are exactly right.

    python3 evaluate_engine.py URL [--documents 5] [--template xml] [--layout question] [--almanac ../almanac]
"""
import argparse
import json
import urllib.request

from evaluate import SEED, almanac_prompts

SYSTEM = 'Answer from the documents.'
TEMPLATES = {
    'xml': '<document id="{_id}" title="{title}">\n{text}\n</document>\n',
    'brackets': '[{_id}] {title}\n{text}\n\n',
    'plain': '## {title}\n{text}\n\n',
}


def messages(body, question, layout):
    user = lambda text: {'role': 'user', 'content': text}
    if layout == 'system':
        return [{'role': 'system', 'content': SYSTEM + '\n\n' + body}, user(question)]
    if layout == 'message':
        return [{'role': 'system', 'content': SYSTEM}, user(body), user(question)]
    return [{'role': 'system', 'content': SYSTEM}, user(body + question)]


def model_name(url):
    with urllib.request.urlopen(url.rstrip('/') + '/v1/models') as response:
        return json.load(response)['data'][0]['id']


def ask(url, model, chat):
    request = urllib.request.Request(url.rstrip('/') + '/v1/chat/completions', headers={'content-type': 'application/json'},
                                     data=json.dumps({'model': model, 'messages': chat, 'temperature': 0, 'max_tokens': 32}).encode())
    with urllib.request.urlopen(request) as response:
        return json.load(response)['choices'][0]['message']['content'].strip()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('url')
    p.add_argument('--documents', type=int, default=5)
    p.add_argument('--template', choices=TEMPLATES, default='xml')
    p.add_argument('--layout', choices=['question', 'message', 'system'], default='question')
    p.add_argument('--almanac', default='../almanac')
    p.add_argument('--limit', type=int, default=256)
    p.add_argument('--errors', type=int, default=0, help='show so many wrong answers')
    args = p.parse_args()
    right, wrong, model = 0, [], model_name(args.url)
    prompts = almanac_prompts(args.almanac, args.documents, SEED)[:args.limit]
    for documents, question, answer in prompts:
        body = ''.join(TEMPLATES[args.template].format(**d) for d in documents)
        said = ask(args.url, model, messages(body, question, args.layout))
        right += said == answer
        if said != answer:
            wrong.append((question, answer, said))
    print(f'{args.template}, {args.layout}, {args.documents} documents: {right} of {len(prompts)} exact ({right / len(prompts):.3f})')
    for question, answer, said in wrong[:args.errors]:
        print(f'  {question!r}: right {answer!r}, said {said!r}')


if __name__ == '__main__':
    main()

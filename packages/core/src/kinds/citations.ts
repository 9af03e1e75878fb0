import { DIGIT_RUN, digitsAs, plainDigits } from './digits.js';

/** Characters before a number that decide whether it cites a document. */
const CONTEXT_LENGTH = 128;
/** Characters between two numbers of one citation. */
const MAX_BETWEEN = 48;
/** Characters behind a number of a prompt that decide the same. */
const MAX_BEHIND = 24;

/** The word in front of a label, and the name of the tag around it. */
const WORD_BEFORE = /([\p{L}_]{1,24})[\s:=#"'\\([./-]{0,4}$/u;
const TAG_BEFORE = /<([\p{L}_-]{1,24})[^<>]{0,64}$/u;

/** The words with which a prompt introduces the labels at these places of a text, in lower case. O(labels). */
export function labelWords(text: string, starts: Iterable<number>): ReadonlySet<string> {
  const words = new Set<string>();
  for (const start of starts) {
    const before = text.slice(Math.max(0, start - CONTEXT_LENGTH), start);
    for (const pattern of [WORD_BEFORE, TAG_BEFORE]) {
      const word = pattern.exec(before)?.[1];
      if (word !== undefined) words.add(word.toLowerCase());
    }
  }
  return words;
}

/**
 * Who says a text. `answer`: the model; its labels are numbers that the prompt has nowhere else. `model`: an earlier
 * answer, `user`: a message, with the client's labels: small numbers, which may count anything.
 */
type CitedBy = 'answer' | 'model' | 'user';

/** How a text cites documents. */
interface CitationRules {
  /** Other labels for these. */
  readonly labels: ReadonlyMap<string, string>;
  /** Words of the prompt in front of labels. */
  readonly words: ReadonlySet<string>;
  readonly by: CitedBy;
}

const URL = /(?:https?:\/\/|www\.)\S*$/i;
/** What stands between a word and its number: signs, or a new line behind a colon. */
const BETWEEN = '(?:[^\\S\\n]|[:=#"\'`\\\\({[<>*_~“”„«：（【［№-]|[:：]\\s*\\n\\s*[-*•]?){0,6}';
const NUMBER_WORD =
  '[ _-]?(?:ids?|index|n[or]s?\\.?|n\\.?\\s?[º°]|№|num\\.?|number|nummer|numéro|número|numero|номер|号|番号|번호|رقم)';
/** A key such as `url_index` or `articleId`. */
const ID_KEY = /(?:[_-](?:ids?|index)|[a-z](?:Ids?|Index))["'\s:=]{1,5}$/;
const SPELLED = new RegExp(
  `(\\p{L}[\\p{L}\\p{M}]*)(?:\\(\\p{L}{1,2}\\)|(?<=refs?|docs?)\\.)?(?:${NUMBER_WORD})?${BETWEEN}$`,
  'iu',
);
const OPEN_BRACKET = /[[【［〔⟦][^\]】］〕⟧\n]*$/;
/** A list over several lines, such as an array of JSON. */
const OPEN_LIST = /\[\s*["']?$/;
const AT_BRACKET = /[[【［〔⟦]\s*\^?["']?$/;
const AT_PARENTHESIS = /[(（]\s?$/;
const BEHIND_WORDS =
  /(?:[\p{L}\p{N}"'”»)]\s|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}])[(（]\s?$/u;
const IDENTIFIER_INDEX = /[\p{L}\p{N}_)]\[$/u;
const SHORT_IDENTIFIER_INDEX = /(?:^|[^\p{L}])[\p{Script=Latin}\p{N}_]{1,3}\[$/u;
const CONJUNCTION =
  'and|or|und|oder|et|ou|y|o|e|en|of|och|eller|og|i|oraz|a|és|ve|veya|dan|atau|và|hoặc|и|или|та|або|και|و|أو|और|或|和|与|與|及|と|및|와|과';
const JOINED = new RegExp(`^(?:[,;&/、，،・|+]|,?(?:${CONJUNCTION}))$`, 'iu');
const BRACKETS_AND_SPACE = /[\s"'[\]【】［］〔〕⟦⟧()（）^*]/g;
const BEHIND_IN_BRACKET = new RegExp(`^(?:["']?\\s*[\\]】］〕⟧,;、，|†]|\\s?(?:${CONJUNCTION})[\\s\\d])`, 'iu');
const BEHIND_IN_LIST = new RegExp(`^(?:\\s*(?:["'\\]】］〕⟧)）.,;:!?、。，]|$|\\n)|\\s(?:${CONJUNCTION})\\s)`, 'iu');
const BEHIND_IN_PARENTHESIS = /^(?:\s?[,;]\s?\d+)*\s?[)）](?:[.,;:!?。、，]|\s*$|\s*\n)/;

/**
 * Replaces the numbers in a text that cite documents. Works on the pieces of a stream: any split gives the same text,
 * and only a number that may still become a label is held back. A number in doubt stays: a label that was not replaced
 * names nothing, but a number that was replaced wrongly would name a document.
 */
export class CitationMapper {
  readonly #rules: CitationRules;
  readonly #maxLabelLength: number;
  /** Text that was read, as it came: what stands before the next number. */
  #before = '';
  #held = '';
  /** Whether the last number was replaced, and what was read since. */
  #isCited = false;
  #between = '';
  #isCode = false;

  constructor(rules: CitationRules) {
    this.#rules = rules;
    this.#maxLabelLength = Math.max(0, ...[...rules.labels.keys()].map(({ length }) => length));
  }

  /** Whether a part of a label may be held back. */
  get isHolding(): boolean {
    return this.#held !== '';
  }

  /** Takes the next piece. @returns what is certain of the text so far and was not returned before. */
  write(piece: string): string {
    return this.#read(piece, false);
  }

  /** @returns what was held back. */
  end(): string {
    return this.#read('', true);
  }

  #read(piece: string, isEnd: boolean): string {
    const { labels } = this.#rules;
    if (labels.size === 0) return piece;
    const text = this.#held + piece;
    this.#held = '';
    let written = '';
    let from = 0;
    for (const { 0: run, index } of text.matchAll(DIGIT_RUN)) {
      this.#pass(text.slice(from, index));
      written += text.slice(from, index);
      from = index;
      const end = index + run.length;
      const isCut = end === text.length && !isEnd;
      const number = plainDigits(run);
      let label: string | undefined;
      if (labels.has(number) || (isCut && this.#begins(number))) {
        const cites = this.#cites(run, text.slice(end, end + MAX_BEHIND));
        const goesOn = cites && this.#goesOn(text, end, isEnd);
        if (goesOn === undefined) {
          this.#held = text.slice(from);
          return written;
        }
        if (goesOn === false && cites) label = labels.get(number);
      }
      written += label === undefined ? run : digitsAs(label, run);
      this.#before = (this.#before + run).slice(-CONTEXT_LENGTH);
      this.#between = '';
      this.#isCited = label !== undefined;
      from = end;
    }
    this.#pass(text.slice(from));
    return written + text.slice(from);
  }

  #begins(number: string): boolean {
    for (const label of this.#rules.labels.keys()) if (label.startsWith(number)) return true;
    return false;
  }

  /** Text without digits was read. */
  #pass(text: string): void {
    if (text === '') return;
    this.#before = (this.#before + text.slice(-CONTEXT_LENGTH)).slice(-CONTEXT_LENGTH);
    this.#between = (this.#between + text).slice(0, MAX_BETWEEN);
    for (const char of text) if (char === '`') this.#isCode = !this.#isCode;
  }

  /** Whether what stands before a number makes it a citation; of a prompt, also what stands behind it. */
  #cites(run: string, behind: string): boolean {
    const { by } = this.#rules;
    const before = this.#before;
    if (URL.test(before)) return false;
    if (isSuperscript(run)) return this.#isFootnote();
    const word = SPELLED.exec(before)?.[1];
    if (word !== undefined && this.#isWord(word.normalize('NFC').toLowerCase())) return true;
    if (by === 'answer' && ID_KEY.test(before)) return true;
    if (/[\p{Nd}\p{No}_]$/u.test(before) || /\p{Nd}[.,'’–—-]$/u.test(before)) return this.#isJoined(behind);
    if (this.#isJoined(behind)) return true;
    if (by === 'answer' && /[^\d\s]\^$/.test(before)) return true;
    if (/\p{L}$/u.test(before)) return false;
    if (IDENTIFIER_INDEX.test(before) && (by === 'user' || this.#isCode)) return false;
    if (by === 'model' && SHORT_IDENTIFIER_INDEX.test(before)) return false;
    if (by === 'answer') {
      if (OPEN_BRACKET.test(before) || OPEN_LIST.test(before)) return true;
      return AT_PARENTHESIS.test(before) && (behind === '' || /^[)）,;、，]/.test(behind));
    }
    if (AT_BRACKET.test(before) || OPEN_LIST.test(before)) return BEHIND_IN_BRACKET.test(behind);
    return BEHIND_WORDS.test(before) && BEHIND_IN_PARENTHESIS.test(behind);
  }

  /** A raised number behind a word. Behind a digit, or one letter, it is an exponent. */
  #isFootnote(): boolean {
    if (this.#rules.by === 'answer') return !/[\p{Nd}\p{No}]$|(?:^|[^\p{L}])\p{L}$/u.test(this.#before);
    return /\p{L}{4}$|[.,;:"”»)]$/u.test(this.#before);
  }

  /** Whether the number goes on a list of citations: `[417, 982]`, `Sources 417 and 982`. */
  #isJoined(behind: string): boolean {
    if (!this.#isCited || this.#between.length >= MAX_BETWEEN) return false;
    const isClosed = /[\]】］〕⟧)）]/.test(this.#between);
    if (isClosed && !/[[【［〔⟦(（]\^?$/.test(this.#between)) return false;
    const sign = this.#between.replace(BRACKETS_AND_SPACE, '');
    if (sign === '' ? !isClosed : !JOINED.test(sign)) return false;
    return this.#rules.by === 'answer' || isClosed || BEHIND_IN_LIST.test(behind);
  }

  /** The word itself, its English plural, or with `id` behind it. */
  #isWord(word: string): boolean {
    const { words, by } = this.#rules;
    const stem = word.replace(/(?:_?ids?|s)$/, '');
    if (words.has(word) || (stem !== '' && words.has(stem))) return true;
    if (isCitingWord(word) || (/ids?$/.test(word) && isCitingWord(stem))) return true;
    return by === 'answer' ? isNamingWord(word) : by === 'model' && /^ids?$/.test(word);
  }

  /**
   * Whether digits that end here are part of something longer, such as `417.5`, `417,000`, `417th` or the range
   * `417-982`; `undefined` while the text does not show it.
   */
  #goesOn(text: string, end: number, isEnd: boolean): boolean | undefined {
    if (end >= text.length) return isEnd ? false : undefined;
    const next = text[end]!;
    if (/[%‰°€$£¥₹_\p{Nd}\p{No}]/u.test(next)) return true;
    if (/[\p{L}\p{M}]/u.test(next)) return !UNSPACED_LETTER.test(next);
    if (!/[.,–—-]/.test(next)) return false;
    const length = next === '.' || next === ',' ? 4 : this.#maxLabelLength + 1;
    const rest = /^\d*/.exec(text.slice(end + 1, end + 1 + length))![0];
    const isCut = end + 1 + rest.length >= text.length && rest.length < length && !isEnd;
    if (next === '.') return rest.length > 0 ? true : isCut ? undefined : false;
    if (isCut) return undefined;
    if (next === ',') return rest.length === 3 && !this.#rules.labels.has(rest);
    return this.#rules.labels.has(rest);
  }
}

/** Letters of scripts that put no space between a number and the next word. */
const UNSPACED_LETTER =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

function isSuperscript(run: string): boolean {
  return /^[⁰¹²³⁴-⁹]/.test(run);
}

/** Ranges in brackets, such as `[1-3]`, as the numbers between them, where each of these is a label. */
export function withoutRanges(text: string, labels: ReadonlyMap<string, string>): string {
  return text.replace(
    /([[【［〔,;]\s?)(\d{1,4})\s?[-–—]\s?(\d{1,4})(?=\s?[\]】］〕,;])/g,
    (whole, open: string, first: string, last: string) => {
      const numbers = Array.from({ length: Math.max(0, Number(last) - Number(first) + 1) }, (_, i) =>
        String(Number(first) + i),
      );
      return numbers.length > 1 && numbers.every((number) => labels.has(number)) ? open + numbers.join(', ') : whole;
    },
  );
}

/** Words for a source in scripts with spaces, as whole words. */
const SPACED = [
  // English, French
  'sources?|documents?|docs?|passages?|citations?|cit(?:e|es|ed|ing)|references?|refs?|excerpts?|snippets?|footnotes?|chunks?|extraits?|références?',
  // German, Dutch, Scandinavian languages
  'quellen?|quellenangaben?|dokument(?:e|en|es|s|et|er|ene)?|belege?|fundstellen?|fu(?:ß|ss)noten?|zitate?|bron|bronnen|documenten|källa|källan|källor|kilde|kilden|kilder',
  // Spanish, Portuguese, Italian, Romanian
  'fuentes?|documentos?|referencias?|referências?|citas?|fragmentos?|pasajes?|fontes?|fonti|trechos?|citaç(?:ão|ões)|documenti|riferiment[oi]|citazion[ei]|bran[oi]|surs[aăe]|sursele',
  // Polish, Czech, Hungarian, Finnish, Turkish
  'źród(?:ło|ła|le|łem|eł|łach)|zdroj(?:e|i|em|ů)?|forrás\\p{L}{0,5}|dokumentum\\p{L}{0,4}|läh(?:de|teet|teen|teessä|teestä)|kayna[kğ]\\p{L}{0,5}|belge\\p{L}{0,4}',
  // Indonesian, Vietnamese
  'sumber|dokumen|rujukan|nguồn|liệu',
  // Russian, Ukrainian, Bulgarian, Greek
  'источник\\p{L}{0,3}|документ\\p{L}{0,3}|ссылк\\p{L}{0,3}|фрагмент\\p{L}{0,3}|джерел\\p{L}{0,3}|източник\\p{L}{0,4}|πηγ\\p{L}{1,3}|έγγραφ\\p{L}{0,3}',
  // Arabic, Persian, Hebrew
  '\\p{L}{0,3}(?:مصدر|مصادر|مستند|وثيقة|مرجع|مراجع|منبع|منابع|سند|מקור|מקורות|מסמך|מסמכים)',
  // Hindi, Bengali
  'स्रोत|दस्तावेज़?|संदर्भ|উৎস|সূত্র',
];
/** The same in scripts without spaces: the word may end a longer run of letters. */
const UNSPACED =
  '出典|資料|文書|情報源|ソース|文献|引用|参考|参照|来源|來源|文档|文檔|资料|出处|出處|文件|출처|문서|자료|소스|แหล่งที่มา|เอกสาร|อ้างอิง';
const CITING_WORD = new RegExp(`^(?:${SPACED.join('|')})$|(?:${UNSPACED})$`, 'u');

/** Words that name what they stand before in an answer, but may count something else in a prompt. */
const NAMING_WORD = /^(?:ids?|nos?|nr|numbers?|index|key|labels?|sup|items?|results?|entry|hits?|articles?)$/;

/** Whether a word in front of a number says that the number cites a document, in one of about 25 languages. */
function isCitingWord(word: string): boolean {
  return CITING_WORD.test(word);
}

/** Whether a word in front of a label, which is no other number of the prompt, names a document. */
function isNamingWord(word: string): boolean {
  return NAMING_WORD.test(word);
}

import type { DocumentSpan, PromptRole } from './block.js';

/** What names a part of a whole: the pages, slides and steps of one thing. */
const PART =
  /^["'#*\s]{0,4}(?:step|chapter|part|phase|day|week|lesson|act|scene|episode|stage|round|turn|slide|page|section|seite|kapitel|abschnitt|schritt|teil|folie|página|paso|capítulo|étape|chapitre|страница|шаг|глава)[ _-]{0,2}#?\d{1,4}\b|^["'#*\s]{0,4}第\s?[\d一二三四五六七八九十百]{1,4}\s?[页章步节回幕]/iu;
/** Who speaks, in a talk. */
const SPEAKER =
  /^["'[(*\s-]{0,4}(?:user|human|assistant|ai|bot|agent|system|customer|caller|operator|support|interviewer|interviewee|nutzer|kunde|usuario|utilisateur|пользователь|用户|助手|客服)[\])*]{0,3}[ \t]?[:：]/iu;
/** A moment, with the time of day. */
const MOMENT = /^["'[(*\s-]{0,4}(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}[T ,]{1,2})?\d{1,2}:\d{2}(?::\d{2})?(?![\d])/;
/** Characters of a document's text that are read. */
const HEAD = 60;
const OWN_ORDER = [PART, SPEAKER, MOMENT];

/**
 * Whether what was found has an order of its own, whatever form it has: parts of a whole, turns of a talk, entries of a
 * log. Such things must not change places. O(documents), mostly O(1).
 */
export function hasOwnOrder(text: string, documents: readonly DocumentSpan[]): boolean {
  const said = ({ contentStart, contentEnd }: DocumentSpan) =>
    text.slice(contentStart, Math.min(contentEnd, contentStart + HEAD));
  if (OWN_ORDER.some((sign) => documents.every((document) => sign.test(said(document))))) return true;
  return documents.every(({ id, title }) => PART.test(title ?? id ?? '') || PART.test(id ?? ''));
}

const NOUN =
  '(?:document|doc|source|passage|context|chunk|snippet|excerpt|result|article|reference|citation|file|item|entry)s?';

/**
 * One pattern of those that begin a word and of others: where no word begins, none of the first is tried. To a pattern,
 * only ASCII letters are parts of words, so what begins with another letter stands among the others.
 */
function anyOf(atWordStart: readonly string[], anywhere: readonly string[]): RegExp {
  return new RegExp([`\\b(?:${atWordStart.join('|')})`, ...anywhere].join('|'), 'i');
}

/** The order itself is spoken of: moving a document would make the sentence false, or mean another document. */
const ORDER = anyOf(
  [
    `(?:first|second|third|fourth|fifth|last|previous|next|preceding|following|former|latter|1st|2nd|3rd|[4-9]th|top(?: \\w+)?)(?: (?:two|three|four|five|few|\\d+))? (?:\\w+ )?${NOUN}\\b`,
    'the (?:first|second|third|fourth|fifth|last|latter|former)(?: (?:one|two|three|few)s?\\b|(?=[.?!,;]))',
    '(?:newest|latest|oldest|earliest|best|closest|highest|lowest)(?:[ -]\\w+)?[ -]first\\b',
    '(?:the|this|that) (?:document|doc|passage|source|chunk|snippet|excerpt|result|article) (?:above|below|at the (?:top|end|bottom))\\b',
    '(?:in|by|follow|keep|preserve|maintain) (?:the |their |this |that )?(?:same |given |original |listed |exact )?order (?:of|in|given|listed|shown|they|above|below|provided|presented)',
    'order(?:ed)? (?:of|by) (?:relevance|importance|appearance|date|time|rank|score|similarity|decreasing|increasing|descending|ascending)',
    '(?:sorted|ranked|listed|arranged) (?:by|in|from|according)\\b',
    'chronological(?:ly)?\\b',
    '(?:most|least|more|less) (?:relevant|recent|important|similar)[^.\\n]{0,30}\\b(?:first|last|top|top|to least|to most)\\b',
    '(?:erste|zweite|dritte|vierte|letzte|vorletzte|oberste|unterste)[nrs]? (?:beiden |drei )?(?:dokument|quelle|abschnitt|text|treffer|ergebnis|artikel|auszug|passage)',
    '(?:primer|segund|tercer|premi[eè]r|deuxième|second|troisième|derni[eè]r|prim|second|terz|ultim)[oae]?s? (?:documento?|texte?|fuente|pasaje|passage|source|extrait|résultat|resultado|fonte|fragmento|artículo|article)s?\\b',
  ],
  [
    '(?:第[一二三四五六七八九十1-9]|最后一)(?:[篇条段份则]|个?(?:文档|资料|来源|片段|结果))|按.{0,6}顺序|(?:最初|最後|[一二三1-9]番目)の(?:文書|資料|結果|記事)|(?:첫|두|세|마지막) ?(?:번째 )?(?:문서|자료|결과)',
    'último (?:documento|texto|pasaje|resultado)|(?:перв|втор|трет|последн)[а-яё]{2,3} (?:документ|источник|фрагмент|результат)',
    '(?:المستند|المصدر|الوثيقة|المقطع|النص) (?:ال)?(?:أول|أولى|ثاني|ثالث|رابع|أخير|سابق)',
  ],
);

/** What a tool says its results are sorted by, as a member of JSON. */
const SORT_MEMBER = /"(?:sort|order)(?:ed)?(?:_?(?:by|order))?"\s*:\s*["[]/i;

/**
 * Whether the texts around documents speak of the order of the documents, or of one by its place. Takes too much for a
 * reference rather than too little: the price is a smaller gain. O(texts).
 */
export function speaksOfOrder(texts: Iterable<{ readonly role: PromptRole; readonly text: string }>): boolean {
  for (const { role, text } of texts) if (role !== 'tool' && role !== 'assistant' && ORDER.test(text)) return true;
  return false;
}

/**
 * Whether a tool says itself, around its results, in which order they are: «sorted by date», `"sort_by": "date"`.
 * O(pieces).
 */
export function saysOwnOrder(pieces: Iterable<string>): boolean {
  for (const piece of pieces) if (ORDER.test(piece) || SORT_MEMBER.test(piece)) return true;
  return false;
}

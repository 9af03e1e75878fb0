/** Words that a line in front of documents says, whatever the language: documents, sources, context, results. */
const DOCUMENT_WORDS =
  /(?<![a-z])(?:documents?|docs|passages?|sources?|contexts?|excerpts?|snippets?|chunks?|evidence|knowledge|articles?|(?:search |web |retrieval )results?|retrieved|information|materials?|dokumente?|quellen?|kontext|auszüge|wissen|documentos?|fuentes?|contexto|contexte|extraits?|documenti|fonti|contesto|документ\w*|источник\w*|контекст)(?![a-z])|المصادر|المستندات|الوثائق|المقاطع|السياق|资料|文档|上下文|知识|参考|検索結果|文書|資料|문서|자료/i;
/** Headings of what lists sources instead of quoting them. */
const BIBLIOGRAPHY =
  /^[\s#*]*(?:references|bibliography|works cited|literature(?: cited)?|footnotes|(?:end)?notes|literatur(?:verzeichnis)?|bibliographie|referencias|参考文献)[\s*:]*$/i;
/** Characters of a line that are read. */
const LINE_LENGTH = 300;

/** The last line before `at` that says something, at most two line ends away; empty if there is none. O(1). */
export function lineBefore(text: string, at: number): string {
  const window = text.slice(Math.max(0, at - LINE_LENGTH), at).split('\n');
  // A rule under a heading, or the fence of a code block, says nothing itself.
  const lines = window.slice(-4).reverse();
  return lines.find((line) => /[\p{L}\p{N}]/u.test(line) && !/^\s*```/.test(line)) ?? '';
}

/** Whether a line announces documents. */
export function saysDocuments(line: string): boolean {
  return DOCUMENT_WORDS.test(line) && !BIBLIOGRAPHY.test(line);
}

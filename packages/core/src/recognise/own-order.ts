import type { DocumentSpan } from './block.js';

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

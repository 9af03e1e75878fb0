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
export function isCitingWord(word: string): boolean {
  return CITING_WORD.test(word);
}

/** Whether a word in front of a label, which is no other number of the prompt, names a document. */
export function isNamingWord(word: string): boolean {
  return NAMING_WORD.test(word);
}

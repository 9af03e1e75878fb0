import { stemmer as arabic } from '@orama/stemmers/arabic';
import { stemmer as armenian } from '@orama/stemmers/armenian';
import { stemmer as bulgarian } from '@orama/stemmers/bulgarian';
import { stemmer as danish } from '@orama/stemmers/danish';
import { stemmer as dutch } from '@orama/stemmers/dutch';
import { stemmer as english } from '@orama/stemmers/english';
import { stemmer as finnish } from '@orama/stemmers/finnish';
import { stemmer as french } from '@orama/stemmers/french';
import { stemmer as german } from '@orama/stemmers/german';
import { stemmer as greek } from '@orama/stemmers/greek';
import { stemmer as hungarian } from '@orama/stemmers/hungarian';
import { stemmer as indian } from '@orama/stemmers/indian';
import { stemmer as indonesian } from '@orama/stemmers/indonesian';
import { stemmer as irish } from '@orama/stemmers/irish';
import { stemmer as italian } from '@orama/stemmers/italian';
import { stemmer as lithuanian } from '@orama/stemmers/lithuanian';
import { stemmer as norwegian } from '@orama/stemmers/norwegian';
import { stemmer as portuguese } from '@orama/stemmers/portuguese';
import { stemmer as romanian } from '@orama/stemmers/romanian';
import { stemmer as russian } from '@orama/stemmers/russian';
import { stemmer as serbian } from '@orama/stemmers/serbian';
import { stemmer as spanish } from '@orama/stemmers/spanish';
import { stemmer as swedish } from '@orama/stemmers/swedish';
import { stemmer as tamil } from '@orama/stemmers/tamil';
import { stemmer as turkish } from '@orama/stemmers/turkish';
import { stemmer as ukrainian } from '@orama/stemmers/ukrainian';
import { stopwords as arabicWords } from '@orama/stopwords/arabic';
import { stopwords as armenianWords } from '@orama/stopwords/armenian';
import { stopwords as bulgarianWords } from '@orama/stopwords/bulgarian';
import { stopwords as danishWords } from '@orama/stopwords/danish';
import { stopwords as dutchWords } from '@orama/stopwords/dutch';
import { stopwords as englishWords } from '@orama/stopwords/english';
import { stopwords as finnishWords } from '@orama/stopwords/finnish';
import { stopwords as frenchWords } from '@orama/stopwords/french';
import { stopwords as germanWords } from '@orama/stopwords/german';
import { stopwords as greekWords } from '@orama/stopwords/greek';
import { stopwords as hungarianWords } from '@orama/stopwords/hungarian';
import { stopwords as indianWords } from '@orama/stopwords/indian';
import { stopwords as indonesianWords } from '@orama/stopwords/indonesian';
import { stopwords as irishWords } from '@orama/stopwords/irish';
import { stopwords as italianWords } from '@orama/stopwords/italian';
import { stopwords as lithuanianWords } from '@orama/stopwords/lithuanian';
import { stopwords as norwegianWords } from '@orama/stopwords/norwegian';
import { stopwords as portugueseWords } from '@orama/stopwords/portuguese';
import { stopwords as romanianWords } from '@orama/stopwords/romanian';
import { stopwords as russianWords } from '@orama/stopwords/russian';
import { stopwords as serbianWords } from '@orama/stopwords/serbian';
import { stopwords as spanishWords } from '@orama/stopwords/spanish';
import { stopwords as swedishWords } from '@orama/stopwords/swedish';
import { stopwords as tamilWords } from '@orama/stopwords/tamil';
import { stopwords as turkishWords } from '@orama/stopwords/turkish';
import { stopwords as ukrainianWords } from '@orama/stopwords/ukrainian';

type Script = 'Latin' | 'Cyrillic' | 'Greek' | 'Arabic' | 'Armenian' | 'Devanagari' | 'Tamil';

/** A language whose words have stems and stop words here. */
export interface Language {
  readonly code: string;
  readonly script: Script;
  readonly stem: (word: string) => string;
  /** In lower case. */
  readonly stopWords: ReadonlySet<string>;
}

const language = (code: string, script: Script, stem: Language['stem'], words: readonly string[]): Language => ({
  code,
  script,
  stem,
  stopWords: new Set(words.flatMap((word) => word.toLowerCase().split(/[^\p{L}\p{M}]+/u)).filter(Boolean)),
});

/** The first of each script is taken where a text does not show its language. */
const LANGUAGES: readonly Language[] = [
  language('en', 'Latin', english, englishWords),
  language('ru', 'Cyrillic', russian, russianWords),
  language('ar', 'Arabic', arabic, arabicWords),
  language('hy', 'Armenian', armenian, armenianWords),
  language('bg', 'Cyrillic', bulgarian, bulgarianWords),
  language('da', 'Latin', danish, danishWords),
  language('nl', 'Latin', dutch, dutchWords),
  language('fi', 'Latin', finnish, finnishWords),
  language('fr', 'Latin', french, frenchWords),
  language('de', 'Latin', german, germanWords),
  language('el', 'Greek', greek, greekWords),
  language('hu', 'Latin', hungarian, hungarianWords),
  language('hi', 'Devanagari', indian, indianWords),
  language('id', 'Latin', indonesian, indonesianWords),
  language('ga', 'Latin', irish, irishWords),
  language('it', 'Latin', italian, italianWords),
  language('lt', 'Latin', lithuanian, lithuanianWords),
  language('no', 'Latin', norwegian, norwegianWords),
  language('pt', 'Latin', portuguese, portugueseWords),
  language('ro', 'Latin', romanian, romanianWords),
  language('sr', 'Cyrillic', serbian, serbianWords),
  language('es', 'Latin', spanish, spanishWords),
  language('sv', 'Latin', swedish, swedishWords),
  language('ta', 'Tamil', tamil, tamilWords),
  language('tr', 'Latin', turkish, turkishWords),
  language('uk', 'Cyrillic', ukrainian, ukrainianWords),
];

/** Places of languages. */
const BY_STOP_WORD = new Map<string, number[]>();
for (const [place, { stopWords }] of LANGUAGES.entries()) {
  for (const word of stopWords) BY_STOP_WORD.set(word, [...(BY_STOP_WORD.get(word) ?? []), place]);
}
const SCRIPTS = [...new Set(LANGUAGES.map(({ script }) => script))].map((script) => ({
  script,
  letter: new RegExp(`^\\p{Script=${script}}`, 'u'),
}));

/** The script of a word's first letter; undefined for scripts whose words have no stems here. */
export function scriptOf(word: string): Script | undefined {
  if (/^[a-z]/i.test(word)) return 'Latin';
  return SCRIPTS.find(({ letter }) => letter.test(word))?.script;
}

/** Words that are looked at for the language of a text. */
const MAX_WORDS = 200;
/** Stop words that a text must have of a language, unless that is the usual one of its script. */
const MIN_STOP_WORDS = 3;

/**
 * The languages of a text: one of each script that its words are written in. Stop words tell languages of one script
 * apart; a word of several languages counts in each of them by its share. O(words).
 *
 * @param among The languages that come into question; of those of one script, the first is the usual one.
 */
export function languagesOf(
  words: readonly string[],
  { among = LANGUAGES, least = MIN_STOP_WORDS }: { readonly among?: readonly Language[]; readonly least?: number } = {},
): Language[] {
  const shares = new Float64Array(LANGUAGES.length);
  const counts = new Uint32Array(LANGUAGES.length);
  const scripts = new Set<Script>();
  for (let at = 0; at < words.length && at < MAX_WORDS; at++) {
    const script = scriptOf(words[at]!);
    if (script === undefined) continue;
    scripts.add(script);
    const holders = BY_STOP_WORD.get(words[at]!.toLowerCase()) ?? [];
    for (const place of holders) {
      shares[place]! += 1 / holders.length;
      counts[place]!++;
    }
  }
  return [...scripts].flatMap((script) => {
    const ofScript = among.filter((each) => each.script === script);
    let best = ofScript[0];
    let most = best === undefined ? 0 : shares[LANGUAGES.indexOf(best)]!;
    for (const each of ofScript) {
      const place = LANGUAGES.indexOf(each);
      if (counts[place]! >= least && shares[place]! > most) [best, most] = [each, shares[place]!];
    }
    return best ?? [];
  });
}

/** Languages by their codes, the usual ones first. */
export function languagesBy(codes: ReadonlySet<string>): Language[] {
  return LANGUAGES.filter(({ code }) => codes.has(code));
}

import { LanguageMaker, type TextLanguage } from './text-language.js';

const DAY = '(?:0[1-9]|1\\d|2[0-8])';
const LEAP_YEAR = '(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)';
const DATE =
  `(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:${DAY}|29|30|31)|(?:0[469]|11)-(?:${DAY}|29|30)|02-${DAY})|` +
  `${LEAP_YEAR}-02-29)`;
const CLOCK = '(?:[01]\\d|2[0-3]):[0-5]\\d';
const TIME = `${CLOCK}:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-]${CLOCK})`;

const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const HOSTNAME = `${LABEL}(?:\\.${LABEL})*`;
const ATOM = "[A-Za-z0-9_'+-]+";
const EMAIL = `${ATOM}(?:\\.${ATOM})*@(?:[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*\\.)+[A-Za-z]{2,24}`;

const BYTE = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const IPV4 = `${BYTE}(?:\\.${BYTE}){3}`;
const GROUP = '[0-9a-fA-F]{1,4}';
const IPV6 = [
  `(?:${GROUP}:){7}${GROUP}`,
  ...[1, 2, 3, 4, 5, 6].map((count) => `(?:${GROUP}:){${count}}(?::${GROUP}){1,${7 - count}}`),
  `::(?:${GROUP}:){0,6}${GROUP}`,
  `(?:${GROUP}:){1,7}:`,
  '::',
].join('|');

const URI_CHARACTER = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";
const URI_REST = `(?:\\?(?:${URI_CHARACTER}|[/?])*)?(?:#(?:${URI_CHARACTER}|[/?])*)?`;
const AUTHORITY = '(?:[A-Za-z0-9._~-]+(?::[A-Za-z0-9._~-]*)?@)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\\d{1,5})?';
const PATH = `(?:/${URI_CHARACTER}*)*`;
const URI = `[A-Za-z][A-Za-z0-9+.-]*:(?://${AUTHORITY}${PATH}|${URI_CHARACTER}+${PATH})${URI_REST}`;
const REFERENCE = `(?:${URI}|(?:[A-Za-z0-9._~-]+)?${PATH}${URI_REST})`;

const TIME_PARTS = 'T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)';
const DURATION = `P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:${TIME_PARTS})?|${TIME_PARTS})`;

const UUID = '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}';
const uuidOf = (version: number): string =>
  `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-${version}[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}`;
const POINTER = '(?:/(?:[^~/]|~[01])*)*';
const BASE64 = '(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?';

/**
 * The values of `format` that an answer is held to, as regular expressions of the whole text: those of JSON Schema (RFC
 * 3339, 3986, 5321, 9562) and of what zod and pydantic write. Others say nothing, as JSON Schema has it.
 */
const STRING_FORMATS: ReadonlyMap<string, string> = new Map([
  ['date', DATE],
  ['time', TIME],
  ['date-time', `${DATE}T${TIME}`],
  ['duration', DURATION],
  ['email', EMAIL],
  ['idn-email', EMAIL],
  ['hostname', HOSTNAME],
  ['idn-hostname', HOSTNAME],
  ['ipv4', IPV4],
  ['ipv6', IPV6],
  ['ipvanyaddress', `${IPV4}|${IPV6}`],
  ['cidrv4', `${IPV4}/(?:3[0-2]|[12]?\\d)`],
  ['ipv4network', `${IPV4}/(?:3[0-2]|[12]?\\d)`],
  ['uri', URI],
  ['url', URI],
  ['iri', URI],
  ['uri-reference', REFERENCE],
  ['iri-reference', REFERENCE],
  ['uuid', UUID],
  ['guid', UUID],
  ...[1, 3, 4, 5, 6, 7, 8].map((version): [string, string] => [`uuid${version}`, uuidOf(version)]),
  ['json-pointer', POINTER],
  ['relative-json-pointer', `(?:0|[1-9]\\d*)(?:#|${POINTER})`],
  ['base64', BASE64],
  ['byte', BASE64],
  ['base64url', '[A-Za-z0-9_-]*'],
]);

const LANGUAGES = new Map<string, TextLanguage>();

/** The texts of a format; `undefined` for one that says nothing. */
export function languageOfFormat(format: string): TextLanguage | undefined {
  const source = STRING_FORMATS.get(format);
  const known = LANGUAGES.get(format);
  if (source === undefined || known !== undefined) return known;
  const language = new LanguageMaker().pattern(`^(?:${source})$`);
  LANGUAGES.set(format, language);
  return language;
}

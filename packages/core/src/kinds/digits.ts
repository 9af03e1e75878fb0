/** Digits 0 to 9 of the scripts in which models write numbers; raised and lowered ones too. */
const SCRIPTS = [
  '0123456789',
  '٠١٢٣٤٥٦٧٨٩',
  '۰۱۲۳۴۵۶۷۸۹',
  '०१२३४५६७८९',
  '০১২৩৪৫৬৭৮৯',
  '๐๑๒๓๔๕๖๗๘๙',
  '０１２３４５６７８９',
  '⁰¹²³⁴⁵⁶⁷⁸⁹',
  '₀₁₂₃₄₅₆₇₈₉',
];
const [PLAIN] = SCRIPTS as [string];

/** A run of digits of one script. */
export const DIGIT_RUN = new RegExp(SCRIPTS.map((digits) => `[${digits}]+`).join('|'), 'g');

/** The run in the digits 0-9. */
export function plainDigits(run: string): string {
  const script = scriptOf(run);
  return script === PLAIN ? run : [...run].map((digit) => script.indexOf(digit)).join('');
}

/** A number in the digits of `run`. */
export function digitsAs(number: string, run: string): string {
  const script = scriptOf(run);
  return script === PLAIN ? number : [...number].map((digit) => script[Number(digit)] ?? digit).join('');
}

function scriptOf(run: string): string {
  return SCRIPTS.find((digits) => digits.includes(run[0]!))!;
}

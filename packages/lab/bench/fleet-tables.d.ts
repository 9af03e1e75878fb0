export const FIGURES_FILE: string;
export const PAGE_FILE: string;
export function tablesOf(cells: unknown): Readonly<Record<string, string>>;

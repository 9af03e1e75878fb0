export function withTables(page: string, tables: Readonly<Record<string, string>>): string;

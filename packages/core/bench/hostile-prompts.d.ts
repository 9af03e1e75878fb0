/** Name and unit of each text. */
export declare const HOSTILE: readonly (readonly [string, string])[];

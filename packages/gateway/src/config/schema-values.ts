import { z } from 'zod';

/** A span of time, in milliseconds, up to a day. */
export const milliseconds = () => z.int().min(1).max(86_400_000);
/** A positive number of something. */
export const count = (max: number) => z.int().min(1).max(max);

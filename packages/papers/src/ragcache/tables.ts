import type { PaperTable } from '../reproduction.js';
import { prefillTable, retrievalPatternTable } from './characterisation.js';
import { driftingHitRateTable, hitRateTable, replacementTtftTable } from './replacement-tables.js';
import { schedulingTimeTable } from './scheduling-time-table.js';
import { overallTable, reorderingTable, throughputTable, topKTable } from './serving-tables.js';
import { speculationTable } from './speculation-tables.js';

/** RAGCache's figures and tables that have a counterpart in the simulator. Each takes seconds. */
export const RAGCACHE_TABLES: readonly PaperTable[] = [
  { name: 'figures-3-7', reproduce: prefillTable },
  { name: 'figures-4-5', reproduce: retrievalPatternTable },
  { name: 'figure-15', reproduce: overallTable },
  { name: 'section-7.1', reproduce: throughputTable },
  { name: 'figure-18', reproduce: topKTable },
  { name: 'figure-20', reproduce: hitRateTable },
  { name: 'figure-20-drift', reproduce: driftingHitRateTable },
  { name: 'table-2', reproduce: replacementTtftTable },
  { name: 'figure-21', reproduce: reorderingTable },
  { name: 'table-3', reproduce: speculationTable },
  { name: 'section-7.5', reproduce: schedulingTimeTable },
];

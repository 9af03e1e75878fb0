export type { OfflineBound, OfflineLimits, OfflineSolver } from './bounds/offline.js';
export { loadOfflineSolver } from './bounds/offline.js';
export { seenBeforeShare } from './bounds/seen-before.js';
export { CACHE_SPECIFICATIONS, createNoCache, readCache } from './cache/cache-specification.js';
export type { GraftCacheOptions } from './cache/grafts.js';
export { GraftCache } from './cache/grafts.js';
export { LlamaSlots } from './cache/llama-slots.js';
export type { Admission, CachedPrompt, CachedPromptReuse, PrefixCacheModel } from './cache/prefix-cache.js';
export { promptTokens, serveAtOnce } from './cache/prefix-cache.js';
export type { SglangRadixCacheOptions } from './cache/sglang-radix.js';
export { SglangRadixCache } from './cache/sglang-radix.js';
export type { TieredTreeOptions } from './cache/tiered-tree.js';
export { TieredTree } from './cache/tiered-tree.js';
export type { VllmBlockCacheOptions } from './cache/vllm-blocks.js';
export { VllmBlockCache } from './cache/vllm-blocks.js';
export type { ConversationLayout } from './conversations.js';
export { CONVERSATION_LAYOUTS } from './conversations.js';
export type { DataFormat } from './data/formats.js';
export { DATA_FORMATS } from './data/formats.js';
export type { LogSummary } from './data/logged-requests.js';
export { LoggedRequests } from './data/logged-requests.js';
export type { Dialogue, DialogueTurn } from './data/mtrag.js';
export { mtragDialogues } from './data/mtrag.js';
export type { Passage } from './data/passages.js';
export { Retriever } from './data/passages.js';
export type { DataSet, ReadDataOptions } from './data/read-data.js';
export { readData } from './data/read-data.js';
export type { LoggedDocument, LoggedRequest, ReadRequestLogOptions } from './data/request-log.js';
export { readRequestLog } from './data/request-log.js';
export type { GoldAnswers } from './data/requests.js';
export type { AnswerScore } from './evaluation/answer-score.js';
export { normalisedWords, REFUSAL, SCORE_NAMES, scoreAnswer } from './evaluation/answer-score.js';
export type { DrawOptions, SourcedQuestion } from './evaluation/drawn-conversations.js';
export { drawConversations } from './evaluation/drawn-conversations.js';
export type { AnsweredTurn, EvaluationQuestion } from './evaluation/evaluation-question.js';
export type {
  AnsweredQuestion,
  ChangedAnswers,
  EvaluationOutcomes,
  EvaluationReport,
  EvaluationSettings,
  EvaluationStrategy,
  FailedQuestion,
  KindFigures,
  ScoreDifference,
  StrategyDifference,
  StrategyFigures,
} from './evaluation/evaluation-report.js';
export { CONVERSATION_STRATEGIES, EVALUATION_STRATEGIES, evaluationReport } from './evaluation/evaluation-report.js';
export type { BootstrapMean, BootstrapOptions, PairedTest } from './evaluation/paired-statistics.js';
export { bootstrapMeans, pairedTTest, signFlipTest } from './evaluation/paired-statistics.js';
export type { EvaluationQuestions, PassageRanks, ReadQuestionsOptions } from './evaluation/questions.js';
export { DEFAULT_TOP_K, readConversationQuestions, readQuestions } from './evaluation/questions.js';
export type { PricedAnswers, PricedStrategy, ShiftPriceFit } from './evaluation/shift-price.js';
export { fitShiftPrice, pricedStrategy, priceLadder, shiftPriceOf } from './evaluation/shift-price.js';
export { studentTPValue } from './evaluation/student-t.js';
export type {
  ExperimentReport,
  ExperimentSeries,
  ExperimentSettings,
  PolicyResult,
  PolicySeries,
  SeedFigures,
} from './experiment.js';
export { Experiment, experimentSeries } from './experiment.js';
export { RTX_4060_TI, RTX_4090 } from './latency.js';
export type { LabPolicyName } from './ordering/lab-policies.js';
export { createLabPolicy, LAB_POLICY_NAMES, readLabPolicyName } from './ordering/lab-policies.js';
export type { RecordedReplaySettings } from './replay/recorded-replay.js';
export { RecordedReplay } from './replay/recorded-replay.js';
export { Replay } from './replay/replay.js';
export type {
  ReplayBounds,
  ReplayReport,
  ReplayResult,
  ReplaySaving,
  ReplayTraffic,
} from './replay/replay-report.js';
export { describeCache } from './replay/replay-report.js';
export type { ReplaySettings } from './replay/replay-settings.js';
export type {
  Chart,
  ChartAxis,
  ChartPoint,
  IntervalChart,
  IntervalRow,
  LineChart,
  LineSeries,
  NumberFormat,
  PairChart,
  PairRow,
} from './report/chart.js';
export { describeChart, formatNumber } from './report/chart.js';
export {
  differenceTitle,
  evaluationFinding,
  evaluationPage,
  SCORE_TITLES,
  tooLongNote,
  writeFailures,
  writeP,
} from './report/evaluation-report.js';
export { experimentPage } from './report/experiment-report.js';
export { renderReport } from './report/render-report.js';
export { replayPage } from './report/replay-report.js';
export type { Report, ReportFact, ReportFigure, ReportOrigin, ReportSection, ReportTable } from './report/report.js';
export { signed } from './report/wording.js';
export { readSeeds } from './seeds.js';
export type {
  Arrival,
  Clients,
  ClosedLoop,
  CreateClients,
  PoissonArrivals,
  SessionArrivals,
  ThinkTime,
} from './server/clients.js';
export { closedLoopClients, poissonClients, recordedClients, sessionClients } from './server/clients.js';
export { EventQueue } from './server/event-queue.js';
export type { ReplicaRun, ServerFigures, ServerOutcome, ServerRun, TokenGap } from './server/outcome.js';
export { serverFigures } from './server/outcome.js';
export type { BatchSettings } from './server/replica.js';
export type { CreateRouter, ReplicaLoad, RoutedRequest, Router, RouterName } from './server/router.js';
export { ROUTER_NAMES, ROUTERS } from './server/router.js';
export type { CreateScheduler, QueuedRequest, SchedulerContext } from './server/schedulers.js';
export { SCHEDULERS } from './server/schedulers.js';
export type { ClientSettings, ServerSettings } from './server/settings.js';
export type { ServerOptions } from './server/simulate-server.js';
export { simulateServer } from './server/simulate-server.js';
export type { DecodeCost, HostCopyCost } from './server/step-cost.js';
export { RTX_4090_DECODE, StepCost } from './server/step-cost.js';
export type { SimulateOptions } from './simulate.js';
export { MAX_QUEUE, simulate } from './simulate.js';
export type {
  Dispatch,
  LearningTime,
  PreparedRequest,
  ServedOutcome,
  SimulatedEngineOptions,
} from './simulated-engine.js';
export { LEARNING_TIMES, SimulatedEngine } from './simulated-engine.js';
export type { Estimate } from './statistics.js';
export { estimate, mean, percentile } from './statistics.js';
export { timeLeft } from './time-left.js';
export type { CatalogueEntry, CreateWorkloadOptions, LengthsName } from './workloads/catalogue.js';
export { createWorkload, LENGTHS_NAMES, RAGBOOST_LENGTHS, WORKLOAD_CATALOGUE } from './workloads/catalogue.js';
export { AGENT_TOKENS, type AgentChoice, chainOfAgents } from './workloads/chain-of-agents.js';
export type { HeadlineOptions } from './workloads/headline.js';
export { headlineTrace } from './workloads/headline.js';
export { MersenneTwister } from './workloads/mersenne-twister.js';
export type { MultiSessionOptions } from './workloads/multi-session.js';
export { multiSessionTrace, RAGBOOST_SESSIONS } from './workloads/multi-session.js';
export type { MultiTurnOptions } from './workloads/multi-turn.js';
export { multiTurnTrace, RAGBOOST_TURNS } from './workloads/multi-turn.js';
export type { RagCacheDataset, RagCacheDatasetName, RagCacheOptions } from './workloads/ragcache.js';
export { RAGCACHE_DATASETS, ragCacheTrace, ragCacheWorkload } from './workloads/ragcache.js';
export { readTrace } from './workloads/read-trace.js';
export type { SessionHabits, SessionsOptions } from './workloads/sessions.js';
export { CASUAL, SETTLED, sessionsTrace } from './workloads/sessions.js';
export { tfIdfTrace } from './workloads/tf-idf.js';
export type { Trace, TraceRequest } from './workloads/trace.js';
export { meanAdjacentJaccard } from './workloads/trace.js';
export type {
  DocumentLengths,
  PromptSpan,
  Workload,
  WorkloadLengths,
  WorkloadRequest,
} from './workloads/workload.js';
export { labDocument, PAPER_LENGTHS, toWorkload } from './workloads/workload.js';
export type { ZipfOptions } from './workloads/zipf.js';
export { zipfTrace } from './workloads/zipf.js';

import { resolveModel, spawnEngine, type EngineProcess } from '@warmpath/engine';
import { startGateway } from '@warmpath/gateway';

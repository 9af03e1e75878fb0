import { MersenneTwister } from './mersenne-twister.js';
import { regionDocuments } from './regions.js';
import type { Trace } from './trace.js';

const CITIES = 20;
const COLUMNS = 5;
/** Degrees; cities stand 0.5 apart in latitude and 0.4 in longitude. */
const RADIUS = 0.7;
const MOVE = 0.3;
const CANDIDATES = 15;
const K = 5;

/**
 * The geospatial workload of RAGCache++ (§4.7): 20 cities on a grid with 10 documents each; 7 of 10 requests stay at
 * the city of the one before. Five documents are drawn at random from the first 15 of the cities within reach, so rank
 * means nothing here, and only one and a half of those cities are ever used.
 */
export function geospatialTrace(seed: number, requests = 200): Trace {
  const random = new MersenneTwister(seed);
  const cities = Array.from({ length: CITIES }, (_, city) => city);
  let city = random.choice(cities);
  return Array.from({ length: requests }, () => {
    if (random.random() < MOVE) city = random.choice(cities);
    const near = cities.filter((other) => distance(city, other) <= RADIUS);
    const candidates = near.flatMap(regionDocuments);
    return { documents: random.sample(candidates.slice(0, CANDIDATES), K), question: city };
  });
}

function distance(a: number, b: number): number {
  const [latitudeA, longitudeA] = position(a);
  const [latitudeB, longitudeB] = position(b);
  return Math.sqrt((latitudeA - latitudeB) ** 2 + (longitudeA - longitudeB) ** 2);
}

function position(city: number): readonly [latitude: number, longitude: number] {
  return [40 + 0.5 * Math.floor(city / COLUMNS), -74 + 0.4 * (city % COLUMNS)];
}

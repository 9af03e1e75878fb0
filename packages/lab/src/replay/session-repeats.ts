/** Documents of sessions that are remembered in all; the session that spoke longest ago is forgotten first. */
const MAX_DOCUMENTS = 2 ** 20;

/** Finds documents that their own session has had before. Memory for at most 2^20 of them. */
export class SessionRepeats {
  /** In order of last use. */
  readonly #sessions = new Map<string, Set<string>>();
  #documents = 0;

  /** Enters the documents of a session's next request, by id; true for each that it has had. O(k). */
  enter(session: string, ids: readonly string[]): readonly boolean[] {
    const known = this.#sessions.get(session) ?? new Set<string>();
    this.#sessions.delete(session);
    this.#sessions.set(session, known);
    const repeats = ids.map((id) => known.has(id));
    for (const id of ids) known.add(id);
    this.#documents += repeats.filter((isRepeat) => !isRepeat).length;
    for (const [oldest, documents] of this.#sessions) {
      if (this.#documents <= MAX_DOCUMENTS || oldest === session) break;
      this.#sessions.delete(oldest);
      this.#documents -= documents.size;
    }
    return repeats;
  }
}

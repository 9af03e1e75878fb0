const share = (count, tokens) => `${Math.round((100 * count) / tokens)} %`;

/** What applications gain, as the docs show it: prompt tokens that came from the engine's cache. */
export function tableOf(figures) {
  const rows = Object.entries(figures).map(([name, { arms }]) => {
    const { direct, allowed, mapped } = arms;
    const best = mapped.gainTokens > allowed.gainTokens ? mapped : allowed;
    return `| ${name} | ${[
      share(direct.cachedTokens, direct.tokens),
      share(allowed.cachedTokens, allowed.tokens),
      share(mapped.cachedTokens, mapped.tokens),
      share(best.gainTokens, best.tokens),
      Math.min(best.right, best.intact),
    ].join(' | ')} |`;
  });
  return [
    '| application | alone | allowed | mapped | gain | right |',
    '| --- | --: | --: | --: | --: | --: |',
    ...rows,
  ].join('\n');
}

// How sure one is that two series of measurements, taken in pairs, differ.

const PAIRS_MIN = 8;

export const median = (list) => {
  const s = list.toSorted((a, b) => a - b);
  return s.length % 2 ? s[s.length >> 1] : (s[s.length / 2 - 1] + s[s.length / 2]) / 2;
};

/** The same numbers every time, so that a result can be had again (mulberry32). */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Pairs [there, here], each taken within one moment: what slows the machine for longer than that slows both, and is gone
 * from their ratio. `ratio` is the median one, `low` and `high` hold it with 99 % (bootstrap; one in twenty
 * would be wrong about one figure in every run of all), `wins` is the share of pairs in which the second is better.
 * `verdict` is "same" unless the interval leaves 1 out, and "unsure" of a handful of pairs, which say nothing.
 */
export function comparePairs(pairs, { more = false, resamples = 2000 } = {}) {
  const ratios = pairs.map(([a, b]) => b / a);
  const next = random(pairs.length);
  const medians = Array.from({ length: resamples }, () => median(ratios.map(() => ratios[Math.floor(next() * ratios.length)]))).sort((a, b) => a - b);
  const low = medians[Math.floor(resamples * 0.005)];
  const high = medians[Math.ceil(resamples * 0.995) - 1];
  const isLess = high < 1;
  return {
    there: median(pairs.map(([a]) => a)),
    here: median(pairs.map(([, b]) => b)),
    ratio: median(ratios),
    low,
    high,
    wins: ratios.filter((r) => (more ? r > 1 : r < 1)).length / ratios.length,
    verdict: pairs.length < PAIRS_MIN ? 'unsure' : isLess || low > 1 ? (isLess === more ? 'worse' : 'better') : 'same',
  };
}

/** SVG paths for a sparkline: the line through the values and the area under it. */
export function sparkPath(
  values: readonly number[],
  samples: number,
  width: number,
  height: number,
): { line: string; area: string } {
  const shown = values.slice(-samples);
  if (shown.length < 2) return { line: '', area: '' };
  const pad = 2;
  const top = Math.max(1, ...shown);
  const step = width / (samples - 1);
  const startX = width - (shown.length - 1) * step;
  const points = shown.map((value, i) => {
    const x = startX + i * step;
    const y = height - pad - (Math.max(0, value) / top) * (height - 2 * pad);
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  const line = `M${points.join('L')}`;
  return { line, area: `${line}V${height}H${startX.toFixed(1)}Z` };
}

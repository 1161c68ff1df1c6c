import { sparkPath } from './sparkPath.ts';
import './Sparkline.css';

type Props = { values: readonly number[]; samples: number; label: string };

const width = 240;
const height = 44;

/** The last `samples` values, newest at the right; the scale starts at zero and never below one. */
export function Sparkline({ values, samples, label }: Props) {
  const { line, area } = sparkPath(values, samples, width, height);
  return (
    <svg
      className="sparkline"
      viewBox={`0 0 ${width} ${height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <path className="sparkline-base" d={`M0 ${height - 0.5}H${width}`} />
      {area && <path className="sparkline-area" d={area} />}
      {line && <path className="sparkline-line" d={line} />}
    </svg>
  );
}

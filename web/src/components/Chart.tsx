/** Small bar charts, drawn by hand: a few dozen columns, each of a time. */
import { useId } from 'react';
import './Chart.css';

export type Column = {
  /** What the column stands for: its time, for people. */
  name: string;
  /** One number per series; null: nothing is known. */
  values: readonly (number | null)[];
};

type Props = {
  title: string;
  /** The figure that sums it up. */
  figure: string;
  columns: readonly Column[];
  /** Names of the series, lowest first; the second is drawn above the first, in another colour. */
  series: readonly string[];
  /** Series stand before each other rather than on top: the higher one behind. */
  overlap?: boolean;
  format: (value: number) => string;
};

const width = 240;
const height = 56;
const gap = 0.25;

const total = (values: readonly (number | null)[], overlap: boolean): number =>
  overlap
    ? Math.max(0, ...values.map((value) => value ?? 0))
    : values.reduce<number>((sum, value) => sum + (value ?? 0), 0);

/** A picture for those who see it, a table for those who do not or want the figures. */
export function Chart({ title, figure, columns, series, overlap = false, format }: Props) {
  const id = useId();
  const top = Math.max(...columns.map(({ values }) => total(values, overlap)), 0);
  const step = width / Math.max(1, columns.length);
  const tell = ({ name, values }: Column) =>
    `${name}: ${series.map((it, i) => `${it} ${values[i] == null ? '–' : format(values[i])}`).join(', ')}`;
  return (
    <figure className="chart" aria-labelledby={id}>
      <figcaption id={id}>
        <span className="chart-title">{title}</span>
        <span className="chart-figure">{figure}</span>
      </figcaption>
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
        <path className="chart-base" d={`M0 ${height - 0.5}H${width}`} />
        {columns.map((column, i) => {
          let below = 0;
          return (
            <g key={column.name}>
              <title>{tell(column)}</title>
              <rect className="chart-space" x={i * step} y="0" width={step} height={height} />
              {series.map((name, at) => {
                // The higher of two that overlap is drawn first, and so seen behind the other.
                const turn = overlap ? series.length - 1 - at : at;
                const value = column.values[turn] ?? 0;
                const size = top > 0 ? (value / top) * (height - 4) : 0;
                const y = height - size - (overlap ? 0 : below);
                below += size;
                return (
                  size > 0 && (
                    <rect
                      key={name}
                      className={`chart-bar chart-series-${turn}`}
                      x={i * step + (step * gap) / 2}
                      y={Math.min(y, height - 1.5)}
                      width={step * (1 - gap)}
                      height={Math.max(size, 1.5)}
                    />
                  )
                );
              })}
            </g>
          );
        })}
      </svg>
      <div className="chart-ends" aria-hidden="true">
        <span>{columns[0]?.name}</span>
        <span>{top > 0 ? `at most ${format(top)}` : ''}</span>
      </div>
      <table className="visually-hidden">
        <caption>{title}</caption>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {series.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {columns
            .filter(({ values }) => values.some((value) => value !== null && value > 0))
            .map(({ name, values }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {series.map((it, i) => (
                  <td key={it}>{values[i] == null ? '–' : format(values[i])}</td>
                ))}
              </tr>
            ))}
        </tbody>
      </table>
    </figure>
  );
}

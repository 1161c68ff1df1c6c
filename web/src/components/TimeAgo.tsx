import { formatAgo, formatTime } from '../format.ts';

/** `now` comes from useNow, once per view rather than once per row. */
export function TimeAgo({ time, now }: { time: string; now: number }) {
  return (
    <time className="time-ago" dateTime={time} title={formatTime(time)}>
      {formatAgo(time, now)}
    </time>
  );
}

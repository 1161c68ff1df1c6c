/** Appears only after a moment (see base.css), so that a quick answer does not flicker. */
export function Loading({ what = 'Loading' }: { what?: string }) {
  return (
    <p className="loading" role="status">
      {what}…
    </p>
  );
}

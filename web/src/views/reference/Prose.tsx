/** A text of the description: `code` in it is code. */
export function Prose({ text }: { text: string }) {
  return (
    <>{text.split('`').map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))}</>
  );
}

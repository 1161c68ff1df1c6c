/** Small line icons in the colour of the text. They are decoration: the label is elsewhere. */
import type { ReactNode } from 'react';

function Icon({ children }: { children: ReactNode }) {
  return (
    <svg
      className="icon"
      viewBox="0 0 16 16"
      width="16"
      height="16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.4"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      {children}
    </svg>
  );
}

export const SunIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="2.75" />
    <path d="M8 1.5v1.25M8 13.25v1.25M1.5 8h1.25M13.25 8h1.25M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9" />
  </Icon>
);

export const MoonIcon = () => (
  <Icon>
    <path d="M13.25 9.6A5.6 5.6 0 0 1 6.4 2.75a5.6 5.6 0 1 0 6.85 6.85Z" />
  </Icon>
);

export const SystemIcon = () => (
  <Icon>
    <rect x="2" y="2.75" width="12" height="8.5" rx="1.25" />
    <path d="M5.75 13.75h4.5" />
  </Icon>
);

export const SendIcon = () => (
  <Icon>
    <path d="M8 13V3M3.75 7.25 8 3l4.25 4.25" />
  </Icon>
);

export const AttachIcon = () => (
  <Icon>
    <path d="m12.5 7.25-5 5a2.75 2.75 0 0 1-3.9-3.9l5.25-5.2a1.8 1.8 0 0 1 2.55 2.55L6.2 10.9a.85.85 0 0 1-1.2-1.2l4.6-4.6" />
  </Icon>
);

export const StopIcon = () => (
  <Icon>
    <rect x="4" y="4" width="8" height="8" rx="1.25" fill="currentColor" />
  </Icon>
);

export const PlayIcon = () => (
  <Icon>
    <path d="M5 3.25v9.5L12.5 8z" fill="currentColor" />
  </Icon>
);

/** The mark: an island of sand with water under it. */
export function Mark() {
  return (
    <svg className="mark" viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">
      <path className="mark-sand" d="M3.5 14.5c2.2-4.6 5-7 8.5-7s6.3 2.4 8.5 7z" />
      <path
        className="mark-sea"
        d="M2 18.25c1.7 0 1.7 1.25 3.35 1.25s1.7-1.25 3.3-1.25 1.7 1.25 3.35 1.25 1.7-1.25 3.3-1.25 1.7 1.25 3.35 1.25 1.7-1.25 3.35-1.25"
      />
    </svg>
  );
}

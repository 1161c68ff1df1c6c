import { useId, useLayoutEffect, useRef, type ReactNode } from 'react';
import './Tabs.css';

export type Tab = { id: string; label: ReactNode; panel: ReactNode };

type Props = {
  label: string;
  tabs: readonly Tab[];
  current: string;
  onChange: (id: string) => void;
};

/**
 * Tabs as the ARIA guide has them: one stop for the Tab key, arrows move between them. Panels that
 * are not shown stay in place, so that what was scrolled or typed there is kept.
 */
export function Tabs({ label, tabs, current, onChange }: Props) {
  const base = useId();
  const list = useRef<HTMLDivElement>(null);
  const shown = tabs.some((tab) => tab.id === current) ? current : tabs[0]?.id;

  // Where they do not all fit, the one that is shown is in sight. Only the list moves, never the page.
  useLayoutEffect(() => {
    const box = list.current;
    const tab = box?.querySelector<HTMLElement>('[aria-selected=true]');
    if (!box || !tab) return;
    const from = tab.offsetLeft - box.offsetLeft;
    const to = from + tab.offsetWidth;
    if (from < box.scrollLeft) box.scrollLeft = from;
    else if (to > box.scrollLeft + box.clientWidth) box.scrollLeft = to - box.clientWidth;
  }, [shown, tabs.length]);

  function move(event: React.KeyboardEvent) {
    const at = tabs.findIndex((tab) => tab.id === shown);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + tabs.length) % tabs.length;
    onChange(tabs[next]?.id ?? '');
    list.current?.querySelectorAll<HTMLElement>('[role=tab]')[next]?.focus();
  }

  return (
    <div className="tabs">
      <div className="tab-list" role="tablist" aria-label={label} ref={list} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`${base}-tab-${tab.id}`}
            aria-controls={`${base}-panel-${tab.id}`}
            aria-selected={tab.id === shown}
            tabIndex={tab.id === shown ? 0 : -1}
            onClick={() => onChange(tab.id)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      {tabs.map((tab) => (
        <div
          key={tab.id}
          className="tab-panel"
          role="tabpanel"
          id={`${base}-panel-${tab.id}`}
          aria-labelledby={`${base}-tab-${tab.id}`}
          hidden={tab.id !== shown}
        >
          {tab.panel}
        </div>
      ))}
    </div>
  );
}

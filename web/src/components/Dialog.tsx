import { useEffect, useId, useRef, type ReactNode } from 'react';
import './Dialog.css';

type Props = { title: string; onClose: () => void; children: ReactNode };

/** A dialog over the page: the browser keeps the focus inside, and Escape closes it. */
export function Dialog({ title, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const it = dialog.current;
    if (it && !it.open) it.showModal();
    return () => it?.close();
  }, []);
  return (
    <dialog
      className="dialog card"
      ref={dialog}
      aria-labelledby={id}
      onClose={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      <div className="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" className="button quiet" onClick={onClose}>
          Close
        </button>
      </div>
      {children}
    </dialog>
  );
}

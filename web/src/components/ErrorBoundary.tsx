import { Component, type ReactNode } from 'react';
import { Notice } from './Notice.tsx';

type Props = { children: ReactNode };
type State = { error: unknown };

/**
 * A broken view does not take the page with it. The likeliest cause is a server that was upgraded
 * under an open page, whose chunks have other names now: loading the page anew mends that.
 */
export class ErrorBoundary extends Component<Props, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(error: unknown): State {
    return { error };
  }

  override render() {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <Notice
        tone="bad"
        title="This view could not be shown"
        action={{ label: 'Reload the page', run: () => location.reload() }}
      >
        The server may have been upgraded since the page was loaded.
        {error instanceof Error && <code className="error-text">{error.message}</code>}
      </Notice>
    );
  }
}

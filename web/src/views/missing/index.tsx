import { Notice } from '../../components/Notice.tsx';
import { plainText } from '../../components/ansi.ts';
import { Link } from '../../router.tsx';

export default function MissingView() {
  return (
    <div className="stack">
      <div className="page-head">
        <h1>Not found</h1>
      </div>
      <Notice title="There is no page at this address">
        Nothing is known of <code dir="auto">{plainText(location.pathname)}</code>.{' '}
        <Link to="/">To the first page</Link> or <Link to="/status">see the status</Link>.
      </Notice>
    </div>
  );
}

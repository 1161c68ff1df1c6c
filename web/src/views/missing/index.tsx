import { Notice } from '../../components/Notice.tsx';
import { Link } from '../../router.tsx';

export default function MissingView() {
  return (
    <div className="stack">
      <div className="page-head">
        <h1>Not found</h1>
      </div>
      <Notice title="There is no page at this address">
        <Link to="/status">See the status</Link>
      </Notice>
    </div>
  );
}

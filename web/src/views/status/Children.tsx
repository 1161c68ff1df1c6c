import type { Child } from '../../api/types.ts';
import { ChildBadge } from '../../components/Badge.tsx';
import { DataTable, type Column } from '../../components/DataTable.tsx';
import { Section } from '../../components/Section.tsx';
import { formatAge, formatBytes, formatCount } from '../../format.ts';

const columns: Column<Child>[] = [
  { title: 'Program', head: true, wide: true, cell: (child) => child.name },
  { title: 'State', plain: true, cell: (child) => <ChildBadge state={child.state} /> },
  // One that somebody else started is known by its line alone.
  { title: 'Pid', numeric: true, cell: (child) => child.pid || '–' },
  {
    title: 'Uptime',
    numeric: true,
    cell: (child) => (child.pid ? formatAge(child.uptimeMs) : '–'),
  },
  { title: 'Restarts', numeric: true, cell: (child) => formatCount(child.restarts) },
  { title: 'Memory', numeric: true, cell: (child) => formatBytes(child.memoryBytes || null) },
];

/** The programs that the server keeps running beside itself. */
export function Children({ items }: { items: readonly Child[] }) {
  const running = items.filter((child) => child.state === 'running').length;
  return (
    <Section title="Programs" flush aside={`${running} of ${items.length} running`}>
      <DataTable
        caption="Child programs"
        columns={columns}
        rows={items}
        rowKey={(child, index) => `${child.name} ${child.pid ?? index}`}
        empty="No child program is running."
      />
    </Section>
  );
}

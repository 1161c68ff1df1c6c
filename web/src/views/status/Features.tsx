import type { Feature } from '../../api/types.ts';
import { FeatureBadge } from '../../components/Badge.tsx';
import { DataTable, type Column } from '../../components/DataTable.tsx';
import { Section } from '../../components/Section.tsx';

const columns: Column<Feature>[] = [
  { title: 'Feature', head: true, cell: (feature) => feature.name },
  { title: 'Status', plain: true, cell: (feature) => <FeatureBadge status={feature.status} /> },
  {
    title: 'Detail',
    wide: true,
    plain: true,
    cell: (feature) => (
      <div>
        {feature.detail || '–'}
        {feature.status !== 'ok' && feature.advice && (
          <div className="advice">{feature.advice}</div>
        )}
      </div>
    ),
  },
];

/** What the kernel offers to keep programs in, as the server found it. */
export function Features({ features }: { features: readonly Feature[] }) {
  const ok = features.filter((feature) => feature.status === 'ok').length;
  return (
    <Section title="Isolation" flush aside={`${ok} of ${features.length} in place`}>
      <DataTable
        caption="Isolation features"
        columns={columns}
        rows={features}
        rowKey={(feature) => feature.name}
        empty="The server named none."
      />
    </Section>
  );
}

// A report on the database that seed.ts makes. env.db is all that this program can reach.
interface Row {
  customer: string;
  orders: number;
  cents: number;
}

export default async function ({ db }: { db: any }) {
  const rows: Row[] = await db.query(
    'SELECT customer, count(*) AS orders, sum(cents) AS cents FROM orders GROUP BY customer ORDER BY cents DESC',
  );
  for (const { customer, orders, cents } of rows) console.log(`${customer}: ${orders} orders, $${(cents / 100).toFixed(2)}`);
  return rows.length;
}

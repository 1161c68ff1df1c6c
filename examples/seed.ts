// Makes the database that report.ts reads. It can be run again: nothing is added twice.
interface Order {
  id: number;
  customer: string;
  cents: number;
}

const orders: Order[] = [
  { id: 1, customer: 'Ada', cents: 1250 },
  { id: 2, customer: 'Grace', cents: 4900 },
  { id: 3, customer: 'Ada', cents: 300 },
];

export default async function ({ db }: { db: any }) {
  await db.execute('CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL)');
  for (const order of orders)
    await db.execute('INSERT OR IGNORE INTO orders VALUES (?, ?, ?)', [order.id, order.customer, order.cents]);
  return `${orders.length} orders`;
}

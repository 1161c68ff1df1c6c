export default async function(env) {
  const rows = await env.db.query("SELECT * FROM customers WHERE tier = 'Gold'");
  console.log("Gold customers:", rows.length);
  for (const row of rows) {
    console.log(` - ${row.name} (${row.id})`);
  }
  if (rows.length > 1) fail(rows);
}

function fail(rows) {
  throw new RangeError(`too many: ${rows.length}`);
}

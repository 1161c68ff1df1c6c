/** Programs to begin with: each shows one thing. */
import type { Form } from './request.ts';

export type Example = { title: string; form: Partial<Form> };

export const examples: readonly Example[] = [
  {
    title: 'Print as it goes',
    form: {
      code: `export default async function () {
  for (let i = 1; i <= 3; i++) {
    await new Promise((done) => setTimeout(done, 200));
    console.log('step', i);
  }
  return 'done';
}
`,
      env: '',
    },
  },
  {
    title: 'A database of its own',
    form: {
      code: `export default async function (env) {
  await env.db.execute('CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT)');
  await env.db.execute('INSERT INTO notes (text) VALUES (?)', 'written ' + new Date().toISOString());
  return await env.db.query('SELECT * FROM notes ORDER BY id DESC LIMIT 5');
}
`,
      env: '{ "db": { "$facet": "notes" } }',
    },
  },
  {
    title: 'No way out',
    form: {
      code: `export default async function () {
  try {
    await fetch('https://example.com');
  } catch (error) {
    return String(error);
  }
}
`,
      env: '',
    },
  },
  {
    title: 'TypeScript',
    form: {
      language: 'ts',
      code: `type Tier = 'Gold' | 'Silver';
const counts = new Map<Tier, number>([['Gold', 3], ['Silver', 5]]);

export default function (): Record<string, number> {
  return Object.fromEntries(counts);
}
`,
      env: '',
    },
  },
  {
    title: 'A worker',
    form: {
      code: `export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    return Response.json({ hello: pathname });
  },
};
`,
      env: '',
    },
  },
];

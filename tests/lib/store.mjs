// Puts records into a data folder as the server would have, for tests of what it shows.
import { DatabaseSync } from 'node:sqlite';
import { statSync, chownSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const digits = '0123456789abcdefghjkmnpqrstvwxyz';

/** An id as base/id.c makes them: 48 bits of milliseconds, 80 random bits. */
export function makeId(prefix, ms, n = 0) {
  let value = (BigInt(ms) << 80n) | BigInt(n);
  let text = '';
  for (let i = 0; i < 26; i++) {
    text = digits[Number(value & 31n)] + text;
    value >>= 5n;
  }
  return `${prefix}_${text}`;
}

/** Runs `use(db)` on the folder's database; the server must not be running. */
export function withStore(dataDir, use, name = 'cay.db') {
  const file = join(dataDir, name);
  const { uid, gid } = statSync(file);
  const db = new DatabaseSync(file);
  try {
    return use(db);
  } finally {
    db.close();
    for (const entry of readdirSync(dataDir)) chownSync(join(dataDir, entry), uid, gid);
  }
}

/** The same on its ledger. */
export const withLedger = (dataDir, use) => withStore(dataDir, use, 'ledger.db');

/** A task that is done. */
export function addTask(db, { id, owner = '' }) {
  db.prepare(
    'INSERT INTO tasks (id, owner, type, state, priority, timeout_ms, max_attempts, run_at_ms, created_ms, finished_ms) VALUES (?, ?, ?, 2, 0, 1, 1, 0, ?, ?)',
  ).run(id, owner, 'run', Date.now(), Date.now());
}

export function addRun(db, run) {
  const row = {
    owner: '',
    kind: 'run',
    status: 'done',
    title: 'a run',
    detail: null,
    error_code: null,
    error_message: null,
    created_ms: Date.now(),
    finished_ms: Date.now() + 500,
    ...run,
  };
  const names = Object.keys(row);
  db.prepare(`INSERT INTO runs (${names.join(',')}) VALUES (${names.map(() => '?').join(',')})`).run(...Object.values(row));
}

/** A sandbox, a command in one, or a snapshot. */
export function addRecord(db, record) {
  const row = { parent: '', owner: '', status: 'stopped', bytes: 0, doc: '{}', ...record };
  const names = Object.keys(row);
  db.prepare(`INSERT INTO records (${names.join(',')}) VALUES (${names.map(() => '?').join(',')})`).run(...Object.values(row));
}

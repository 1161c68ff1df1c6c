CREATE TABLE IF NOT EXISTS todos (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  task TEXT NOT NULL CHECK (length(task) BETWEEN 1 AND 500),
  due TEXT CHECK (due IS date(due)),
  done INTEGER NOT NULL DEFAULT 0 CHECK (done IN (0, 1)),
  created TEXT NOT NULL DEFAULT (datetime('now'))
);

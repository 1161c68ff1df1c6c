CREATE TABLE IF NOT EXISTS customers (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  email TEXT NOT NULL,
  tier TEXT NOT NULL DEFAULT 'Bronze',
  region TEXT NOT NULL DEFAULT 'Unknown'
);

INSERT INTO customers (name, email, tier, region) VALUES
  ('Alice Chen', 'alice@example.com', 'Gold', 'West'),
  ('Bob Martinez', 'bob@example.com', 'Silver', 'East'),
  ('Carol Johnson', 'carol@example.com', 'Bronze', 'West'),
  ('Dave Kim', 'dave@example.com', 'Gold', 'Central'),
  ('Eve Williams', 'eve@example.com', 'Silver', 'East'),
  ('Frank Brown', 'frank@example.com', 'Bronze', 'West'),
  ('Grace Lee', 'grace@example.com', 'Gold', 'Central'),
  ('Hank Davis', 'hank@example.com', 'Silver', 'East');

// @vitest-environment node
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';

const root = fileURLToPath(new URL('..', import.meta.url));
const run = promisify(execFile);
const home = mkdtempSync(join(tmpdir(), 'cay-web-'));
afterAll(() => rmSync(home, { recursive: true }));

async function buildInto(name: string): Promise<Map<string, string>> {
  const outDir = join(home, name);
  const vite = join(root, 'node_modules/vite/bin/vite.js');
  await run(process.execPath, [vite, 'build', '--manifest', 'manifest.json', '--outDir', outDir], {
    cwd: root,
  });
  const files = readdirSync(outDir, { recursive: true, withFileTypes: true }).filter((it) =>
    it.isFile(),
  );
  return new Map(
    files
      .map((it) => join(it.parentPath, it.name))
      .sort()
      .map((path) => [path.slice(outDir.length + 1), readFileSync(path, 'utf8')]),
  );
}

let files: Map<string, string>;
beforeAll(async () => {
  files = await buildInto('one');
}, 60_000);

test('the same sources make the same files', { timeout: 60_000 }, async () => {
  expect(await buildInto('two')).toEqual(files);
});

test('everything but index.html has its hash in its name and lies under assets/', () => {
  const names = [...files.keys()].filter((name) => !/^(index\.html|manifest\.json)$/.test(name));
  expect(names.length).toBeGreaterThan(5);
  for (const name of names) expect(name).toMatch(/^assets\/[\w.-]+-[\w-]{8}\.(js|css|svg)$/);
});

test('the page has no inline script, style or handler, and asks no other server', () => {
  const html = files.get('index.html')!;
  expect(html).not.toMatch(/<script(?![^>]*\ssrc=)/);
  expect(html).not.toMatch(/<style|\sstyle=|\son\w+=/);
  expect(html).not.toMatch(/(?:src|href)="(?!\/)/);
});

test('the theme is set by a blocking script in front of the stylesheet', () => {
  const html = files.get('index.html')!;
  const script = html.search(/<script src="\/assets\/theme-/);
  expect(script).toBeGreaterThan(0);
  expect(script).toBeLessThan(html.indexOf('rel="stylesheet"'));
});

type Chunk = { file: string; css?: string[]; imports?: string[]; dynamicImports?: string[] };

/** What a browser may ever fetch for one view: the page itself, and all that the view's code leads to. */
function sizeOf(manifest: Record<string, Chunk>, view: string): number {
  const seen = new Set<string>();
  const visit = (key: string, deep: boolean) => {
    const chunk = manifest[key]!;
    if (seen.has(key)) return;
    seen.add(key);
    for (const next of chunk.imports ?? []) visit(next, deep);
    if (deep) for (const next of chunk.dynamicImports ?? []) visit(next, deep);
  };
  visit('index.html', false);
  visit(view, true);
  const names = new Set(
    [...seen].flatMap((key) => [manifest[key]!.file, ...(manifest[key]!.css ?? [])]),
  );
  return [...names].reduce((sum, name) => sum + gzipSync(files.get(name)!, { level: 9 }).length, 0);
}

test('no view needs more than 250 KiB, compressed', () => {
  const manifest = JSON.parse(files.get('manifest.json')!) as Record<string, Chunk>;
  const views = manifest['index.html']!.dynamicImports!.filter((key) => /^src\/views\//.test(key));
  expect(views.length).toBeGreaterThan(10);
  const sizes = Object.fromEntries(
    views.map((view) => [view.split('/')[2], sizeOf(manifest, view)]),
  );
  console.info(JSON.stringify(sizes));
  for (const [view, size] of Object.entries(sizes)) expect(size, view).toBeLessThan(250 * 1024);
});

test('nothing in the build tells where it was made', () => {
  for (const [name, text] of files) expect(text.includes(root), name).toBe(false);
});

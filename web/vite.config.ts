import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import react from '@vitejs/plugin-react';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

const bootFile = fileURLToPath(new URL('./src/theme/boot.js', import.meta.url));

/**
 * Puts the theme script in front of everything else as a classic, blocking script, so that a page
 * kept dark never flashes white. It has to be a file of its own: the Content-Security-Policy the
 * page runs under allows no inline script, and a module would run after the first paint.
 */
function themeBoot(): Plugin {
  let building = false;
  let asset = '';
  return {
    name: 'cay:theme-boot',
    configResolved(config) {
      building = config.command === 'build';
    },
    buildStart() {
      if (!building) return;
      const source = readFileSync(bootFile, 'utf8');
      asset = this.emitFile({ type: 'asset', name: 'theme.js', source });
    },
    generateBundle() {
      asset = this.getFileName(asset);
    },
    transformIndexHtml() {
      const src = building ? `/${asset}` : '/src/theme/boot.js';
      return [{ tag: 'script', attrs: { src }, injectTo: 'head-prepend' }];
    },
  };
}

export default defineConfig(async ({ command, mode }) => {
  // A NODE_ENV that happens to be set must not turn the build into a development one.
  if (command === 'build') process.env.NODE_ENV = 'production';

  // `npm run dev` talks to the mock unless CAY_URL names a running cay.
  const developing = command === 'serve' && mode === 'development';
  let target = process.env.CAY_URL ?? '';
  if (developing && !target) {
    const { startMock } = await import('./dev/mock.mjs');
    target = (await startMock()).url;
  }

  return {
    plugins: [react(), themeBoot()],
    server: developing
      ? {
          proxy: {
            '/v1': { target, ws: true },
            '/agents': { target, ws: true },
            '/health': { target },
          },
        }
      : {},
    build: {
      outDir: '../build/web',
      emptyOutDir: true,
      // The oldest browsers with light-dark(), which the colours in styles/tokens.css are made of.
      target: ['chrome123', 'firefox128', 'safari17.5'],
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
      // To read a property, or a name of the browser's, changes nothing: what only does that is left out.
      rollupOptions: {
        treeshake: { propertyReadSideEffects: false as const, unknownGlobalSideEffects: false },
      },
      // The chat is the original clients' own code, and a chunk that only the chat loads.
      chunkSizeWarningLimit: 600,
    },
    test: {
      environment: 'jsdom',
      include: ['src/**/*.test.{ts,tsx}', 'test/**/*.test.ts'],
    },
  };
});

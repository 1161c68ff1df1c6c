// Runs before the first paint, as a classic script: see themeBoot() in vite.config.ts.
// Keep the key and the values in step with theme.ts.
try {
  const kept = localStorage.getItem('cay.theme');
  if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept;
} catch {
  // Storage is off: the system's theme it is.
}

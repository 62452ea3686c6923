// Light or dark: the system's choice unless the visitor made another. Loaded before the first paint,
// so that a page never flashes in the wrong one. Knows nothing else of the page.
(() => {
  const root = document.documentElement;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const chosen = () => {
    try {
      return localStorage.getItem('tallygate-theme');
    } catch {
      return null;
    }
  };
  const shown = () => chosen() ?? (dark.matches ? 'dark' : 'light');
  const apply = () => {
    root.dataset.theme = shown();
  };
  apply();
  dark.addEventListener('change', apply);
  addEventListener('DOMContentLoaded', () => {
    const button = document.querySelector('#theme');
    const label = () => {
      const other = shown() === 'dark' ? 'light' : 'dark';
      button.setAttribute('aria-label', `Switch to ${other} colours`);
      button.title = `Switch to ${other} colours`;
    };
    label();
    dark.addEventListener('change', label);
    button.addEventListener('click', () => {
      try {
        localStorage.setItem('tallygate-theme', shown() === 'dark' ? 'light' : 'dark');
      } catch {
        // Where nothing may be kept, the system's choice stays.
      }
      apply();
      label();
    });
  });
})();

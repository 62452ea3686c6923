// Light or dark theme: the system's unless the visitor chose one. Loaded before the first paint to
// avoid a flash of the wrong theme.
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
  const current = () => chosen() ?? (dark.matches ? 'dark' : 'light');
  const apply = () => {
    root.dataset.theme = current();
  };
  apply();
  dark.addEventListener('change', apply);
  addEventListener('DOMContentLoaded', () => {
    const button = document.querySelector('#theme');
    const label = () => {
      const other = current() === 'dark' ? 'light' : 'dark';
      button.setAttribute('aria-label', `Switch to ${other} colours`);
      button.title = `Switch to ${other} colours`;
    };
    label();
    dark.addEventListener('change', label);
    button.addEventListener('click', () => {
      try {
        localStorage.setItem('tallygate-theme', current() === 'dark' ? 'light' : 'dark');
      } catch {
        // Storage is not available: the system's theme stays.
      }
      apply();
      label();
    });
  });
})();

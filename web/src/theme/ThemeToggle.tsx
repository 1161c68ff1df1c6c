import { MoonIcon, SunIcon, SystemIcon } from '../components/Icon.tsx';
import { setTheme, themes, useTheme, type Theme } from './theme.ts';
import './ThemeToggle.css';

const labels: Record<Theme, string> = { system: 'System theme', light: 'Light', dark: 'Dark' };
const icons = { system: SystemIcon, light: SunIcon, dark: MoonIcon };

/** Three radio buttons, so that arrow keys and screen readers get what they expect. */
export function ThemeToggle() {
  const current = useTheme();
  return (
    <fieldset className="theme-toggle">
      <legend className="visually-hidden">Colour theme</legend>
      {themes.map((theme) => {
        const Icon = icons[theme];
        return (
          <label key={theme} title={labels[theme]}>
            <input
              type="radio"
              name="theme"
              value={theme}
              checked={theme === current}
              onChange={() => setTheme(theme)}
            />
            <Icon />
            <span className="visually-hidden">{labels[theme]}</span>
          </label>
        );
      })}
    </fieldset>
  );
}

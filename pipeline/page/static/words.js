// The words of the pages in the owner's language, of words.LANGUAGE.json.
const languages = { en: 'English', de: 'Deutsch', fr: 'Français', es: 'Español', zh: '中文' };

// The language of the address (?lang=de), else the one that was chosen before, else the first of the browser's that there is.
let chosen;
try { chosen = localStorage.getItem('lang'); } catch { /* storage is refused */ }
const asked = [new URLSearchParams(location.search).get('lang'), chosen, ...navigator.languages];
export const language = asked.map(l => l?.slice(0, 2).toLowerCase()).find(l => Object.hasOwn(languages, l)) ?? 'en';

const words = await (await fetch(new URL(`words.${language}.json`, import.meta.url))).json();
const plurals = new Intl.PluralRules(language);

// t returns a text with its {values}; numbers are written as the language writes them, in full, and n chooses the form.
export function t(key, values = {}) {
  const text = words[key] ?? key, form = typeof text === 'string' ? text : text[plurals.select(values.n)] ?? text.other;
  return form.replace(/\{(\w+)\}/g, (all, name) => {
    const v = values[name];
    return v === undefined ? all : typeof v === 'number' ? v.toLocaleString(language, { maximumSignificantDigits: 15 }) : v;
  });
}

// translate writes the words of the page's own elements, and the choice of a language.
export function translate() {
  document.documentElement.lang = language;
  for (const e of document.querySelectorAll('[data-t]')) e.textContent = t(e.dataset.t);
  for (const e of document.querySelectorAll('[data-label]')) e.setAttribute('aria-label', t(e.dataset.label));
  document.title = document.querySelector('h1').textContent;
  const choice = document.getElementById('language');
  for (const [l, name] of Object.entries(languages)) choice.add(new Option(name, l, false, l === language));
  for (const o of choice.options) o.lang = o.value;
  choice.addEventListener('change', () => {
    const to = new URL(location.href);
    to.searchParams.delete('lang');
    try { localStorage.setItem('lang', choice.value); } catch { to.searchParams.set('lang', choice.value); }
    choice.value = language; // where its reader stays
    location.replace(to);
    if (to.href === location.href) location.reload();
  });
}

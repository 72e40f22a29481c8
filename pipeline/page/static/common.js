// What both pages share: elements, the program in its worker, what is kept in the browser, and the choosing of files.

import { t } from './words.js';

// el makes an element; properties that begin with on are listeners, others attributes; children are nodes or text.
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

export const byId = id => document.getElementById(id);
export const fill = (e, ...children) => e.replaceChildren(...children.flat(Infinity).filter(Boolean));

// show fills a panel. The keyboard stays where it was in it: else it would begin again at the page's top.
export function show(id, ...children) {
  const panel = byId(id), held = panel.contains(document.activeElement);
  fill(panel, ...children);
  if (!held) return;
  panel.tabIndex = -1;
  panel.focus({ preventScroll: true });
}

export function bytes(n) {
  const units = [t('bytes'), 'kB', 'MB', 'GB'];
  let u = 0;
  while (n >= 1000 && u < units.length - 1) { n /= 1000; u++; }
  return `${u === 0 ? n : n.toPrecision(3)} ${units[u]}`;
}

export function duration(s) {
  if (s < 1) return t('lessSecond');
  if (s < 90) return t('seconds', { n: Math.round(s) });
  if (s < 5400) return t('minutes', { n: Math.round(s / 60) });
  return t('hours', { n: Math.round(s / 3600) });
}

// Program is the program in a worker, which is started again after it failed or was stopped.
export class Program {
  #worker; #calls = new Map(); #next = 0; #lost;
  // lost is called where the program has ended and lost what it had open.
  constructor(lost) { this.#lost = lost; }
  #start() {
    this.#worker = new Worker('worker.js');
    this.#worker.onmessage = ({ data: m }) => {
      if (m.ended) { this.stop(t('programEnded')); return; }
      const c = this.#calls.get(m.id);
      if (!c) return;
      if (m.out === undefined) { c.progress?.(m.done, m.all); return; }
      this.#calls.delete(m.id);
      if (m.out.error) c.reject(new Error(m.out.error));
      else c.resolve({ ...JSON.parse(m.out.json), data: m.out.data });
    };
    this.#worker.onerror = e => { e.preventDefault(); this.stop(e.message || t('noWorker')); };
  }
  // call runs a method of cmd/fmp-page.
  call(method, params, { data, files, progress } = {}) {
    if (!this.#worker) this.#start();
    return new Promise((resolve, reject) => {
      const id = this.#next++;
      this.#calls.set(id, { resolve, reject, progress });
      this.#worker.postMessage({ id, method, params, data, files });
    });
  }
  // stop ends the program and what it is at.
  stop(why) {
    this.#worker?.terminate();
    this.#worker = undefined;
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const c of calls) c.reject(new Error(why));
    this.#lost?.(why);
  }
}

// kept is a table of names and values in this browser (IndexedDB).
const base = new Promise((resolve, reject) => {
  const open = indexedDB.open('fmp', 1);
  open.onupgradeneeded = () => open.result.createObjectStore('kept');
  open.onsuccess = () => resolve(open.result);
  open.onerror = () => reject(open.error);
});
// Storage may be refused: nothing is kept then.
const stored = base.then(() => true, () => false);
async function kept(mode, act) {
  const t = (await base).transaction('kept', mode, { durability: 'strict' });
  return new Promise((resolve, reject) => {
    const r = act(t.objectStore('kept'));
    t.oncomplete = () => resolve(r.result);
    t.onerror = t.onabort = () => reject(t.error);
  });
}
export const recall = async name => await stored ? kept('readonly', s => s.get(name)) : undefined;

// keep keeps a value, and says whether it did.
export const keep = (name, value) => kept('readwrite', s => s.put(value, name)).then(() => true, () => false);

// keptKeys returns the lines of the keys that were kept, with their files.
export async function keptKeys() {
  const names = await kept('readonly', s => s.getAllKeys(IDBKeyRange.bound('key ', 'key \uffff')));
  return Promise.all(names.map(async name => [name.slice('key '.length), await recall(name)]));
}

// spend keeps a release with its line of the ledger, both or none: unless the ledger is as it was when the line was made, nothing is kept.
export const spend = (ledger, line, name, data) => kept('readwrite', s => {
  const r = s.get('ledger');
  r.onsuccess = () => {
    if ((r.result ?? '') !== ledger) { s.transaction.abort(); return; }
    s.put(ledger + line, 'ledger');
    s.put(data, name);
    s.delete(`${name} receipt`);
  };
  return r;
});

// save hands a file to the person.
export function save(name, data, type = 'application/octet-stream') {
  const a = el('a', { href: URL.createObjectURL(new Blob([data], { type })), download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60000);
}

// filesOf returns what was dropped or chosen, as {path, file}.
export async function filesOf(list) {
  if (list instanceof FileList) return [...list].map(file => ({ path: file.webkitRelativePath || file.name, file }));
  const entries = [...list].map(i => i.webkitGetAsEntry?.() ?? i.getAsFile()).filter(Boolean);
  const out = [];
  const walk = async e => {
    if (e instanceof File) out.push({ path: e.name, file: e });
    else if (e.isFile) out.push({ path: e.fullPath.slice(1), file: await new Promise((ok, no) => e.file(ok, no)) });
    else for (const reader = e.createReader(); ;) {
      const some = await new Promise((ok, no) => reader.readEntries(ok, why => no(new Error(`${e.fullPath.slice(1)}: ${why.message}`))));
      if (some.length === 0) break;
      for (const s of some) await walk(s);
    }
  };
  for (const e of entries) await walk(e);
  return out;
}

// chooser is a place where files are dropped, with a button for each input: [{id, label, ...attributes}]. take is given a promise of the
// files, as a folder takes time to walk: other work can be made to wait for it. Where a file or folder cannot be read, the place says so.
export function chooser(text, inputs, take) {
  const fault = el('div', {});
  const taken = async list => {
    fill(fault);
    try { await take(filesOf(list)); } catch (e) { fill(fault, failed(e)); }
  };
  const inputOf = i => {
    const { label, ...props } = i;
    const input = el('input', { type: 'file', class: 'hidden', tabindex: '-1', 'aria-label': label, ...props, onchange: async () => { await taken(input.files); input.value = ''; } });
    return [el('button', { type: 'button', class: 'quiet', onclick: () => input.click() }, label), input];
  };
  const zone = el('div', { class: 'drop', role: 'group', 'aria-label': text,
    ondragover: e => { e.preventDefault(); zone.classList.add('over'); },
    ondragleave: () => zone.classList.remove('over'),
    ondrop: async e => { e.preventDefault(); zone.classList.remove('over'); await taken(e.dataTransfer.items); },
  }, el('p', {}, text), el('div', { class: 'buttons' }, inputs.map(inputOf)), fault);
  return zone;
}

// picture is a photograph that may be of a format that the browser does not show.
export function picture(file, alt) {
  const img = el('img', { src: URL.createObjectURL(file), alt, loading: 'lazy', decoding: 'async' });
  img.addEventListener('error', () => img.replaceWith(el('span', { class: 'unseen' }, file.name.split('.').pop().toUpperCase())));
  return img;
}

export function failed(e) { return el('p', { class: 'note bad', role: 'alert' }, String(e.message ?? e)); }

export async function foot(program) {
  try {
    const { build: v } = await program.call('version');
    show('foot', `fmp ${v.version}${v.revision ? ' ' + v.revision.slice(0, 12) : ''}. ${t('cameFrom', { host: location.host || t('thisComputer') })}`);
  } catch (e) {
    show('foot', String(e.message));
    throw e;
  }
}

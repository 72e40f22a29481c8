// Where chosen files lie: the same rules for taking part and for scoring.

// placed returns the path from a class's folder on, with one folder above at most; undefined where none is there, or two. The program leaves
// hidden files out, by their whole paths.
export function placed(path, classes) {
  const parts = path.split('/');
  if (parts.some(p => p.startsWith('.'))) return path;
  const named = new Set(parts.slice(0, -1).slice(0, 2).filter(p => classes.includes(p)));
  if (named.size === 1) return parts.slice(parts.findIndex(p => named.has(p))).join('/');
}

async function same(a, b) {
  if (a.size !== b.size) return false;
  const [x, y] = await Promise.all([a, b].map(async f => new Uint8Array(await f.arrayBuffer())));
  for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return false;
  return true;
}

// add puts a file under its path, or a free one like it; false where the same file is there.
export async function add(photos, path, file) {
  const [, stem, end = ''] = /^(.*?[^/])(\.[^./]*)?$/s.exec(path);
  for (let n = 2; photos.has(path); n++) {
    if (await same(photos.get(path), file).catch(() => false)) return false;
    path = `${stem} (${n})${end}`;
  }
  photos.set(path, file);
  return true;
}

// Where chosen files lie: the same rules for taking part and for scoring.

// placed returns the path from the folder of a class on, as fmp-edge reads it in a folder of such folders; undefined where neither of the
// first two folders is one, or each another. Hidden files keep their paths, by which the program leaves them out.
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

// add puts a file under its path, or under a free one where another file has that; false where the same file is there.
export async function add(photos, path, file) {
  const [, stem, end = ''] = /^(.*?[^/])(\.[^./]*)?$/s.exec(path);
  for (let n = 2; photos.has(path); n++) {
    if (await same(photos.get(path), file).catch(() => false)) return false;
    path = `${stem} (${n})${end}`;
  }
  photos.set(path, file);
  return true;
}

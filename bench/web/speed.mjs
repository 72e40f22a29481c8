// Times the page's program beside onnxruntime-web's wasm backend (SIMD, one thread) on the same client graph, under Node, in turns.
//   make page; cd bench/web; npm install; node speed.mjs CLIENT.onnx [IMAGES] [TURNS]
// The page reads uncompressed bitmaps of the graph's own size and makes its upload; onnxruntime-web is given the pixels, in batches
// of one and of eight. Times are processor seconds an image of this process: the least and the middle of the turns.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import vm from 'node:vm';
import * as ort from 'onnxruntime-web/wasm';

const require = createRequire(import.meta.url), page = new URL('../../bin/page/', import.meta.url);
const [path, images = 48, turns = 7] = process.argv.slice(2);
const graph = new Uint8Array(readFileSync(path)), count = Number(images);

// opened starts the program as the page's worker does.
async function opened() {
  globalThis.self = globalThis;
  for (const script of ['wasm_exec.js', 'vector.js']) vm.runInThisContext(readFileSync(new URL(script, page), 'utf8'));
  const go = new Go(), started = new Promise(resolve => { globalThis.fmpReady = resolve; });
  const loaded = globalThis.fmpVector(go.importObject);
  const { instance } = await WebAssembly.instantiate(require('node:zlib').gunzipSync(readFileSync(new URL('fmp.wasm.gz', page))), go.importObject);
  loaded(instance);
  go.run(instance);
  await started;
  return (method, params, data, read) => {
    const out = globalThis.fmpCall(method, JSON.stringify(params), data ?? null, read ?? null, () => {});
    if (out.error) throw new Error(out.error);
    return JSON.parse(out.json);
  };
}

// bitmap returns a BMP of pixels, [height, width, 3], whose sizes need no padding of lines.
function bitmap(pixels, height, width) {
  const line = Math.ceil(width * 3 / 4) * 4, out = new Uint8Array(54 + line * height), view = new DataView(out.buffer);
  out.set([0x42, 0x4d]);
  [[2, out.length], [10, 54], [14, 40], [18, width], [22, height], [34, line * height]].forEach(([at, v]) => view.setUint32(at, v, true));
  view.setUint16(26, 1, true);
  view.setUint16(28, 24, true);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) for (let c = 0; c < 3; c++)
    out[54 + (height - 1 - y) * line + 3 * x + c] = pixels[(y * width + x) * 3 + 2 - c];
  return out;
}

const call = await opened();
const { height, width, classes } = call('open', { scope: 'bench' }, graph);
let state = 1;
const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 24;
const pixels = Array.from({ length: count }, () => Uint8Array.from({ length: height * width * 3 }, random));
const files = new Map(pixels.map((p, i) => [`${classes[i % classes.length]}/${i}.bmp`, bitmap(p, height, width)]));
const paths = [...files.keys()];

ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(graph, { executionProviders: ['wasm'] });
const outputs = session.outputNames;

async function theirs(batch) {
  for (let i = 0; i < count; i += batch) {
    const n = Math.min(batch, count - i), flat = new Uint8Array(n * height * width * 3);
    for (let k = 0; k < n; k++) flat.set(pixels[i + k], k * height * width * 3);
    await session.run({ images: new ort.Tensor('uint8', flat, [n, height, width, 3]),
      labels: new ort.Tensor('int64', BigInt64Array.from({ length: n }, (_, k) => BigInt((i + k) % classes.length)), [n]) }, outputs);
  }
}

const rows = {
  page: async () => { call('compress', { name: 'bench', paths }, null, p => files.get(p)); },
  'onnxruntime-web, batch 1': () => theirs(1),
  'onnxruntime-web, batch 8': () => theirs(8),
};
const times = {};
for (let turn = -1; turn < Number(turns); turn++) {
  for (const [name, run] of Object.entries(rows)) {
    const start = process.cpuUsage();
    await run();
    const { user, system } = process.cpuUsage(start);
    if (turn >= 0) (times[name] ??= []).push((user + system) / 1e3 / count); // the first turn compiles
  }
}
const of = name => times[name].sort((a, b) => a - b);
const best = Math.min(of('onnxruntime-web, batch 1')[0], of('onnxruntime-web, batch 8')[0]);
for (const name of Object.keys(rows)) {
  const t = of(name);
  console.log(`${name.padEnd(28)} ${t[0].toFixed(2)} ms an image at least, ${t[t.length >> 1].toFixed(2)} in the middle; ` +
    `share of onnxruntime-web's best ${(best / t[0]).toFixed(2)}`);
}
process.exit();

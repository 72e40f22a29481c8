// The worker runs the program of cmd/fmp-page, so that the page stays awake while it computes.
importScripts('wasm_exec.js', 'vector.js');

const started = new Promise(resolve => { self.fmpReady = resolve; });

// unpacked returns the program's bytes. Some servers unpack a .gz on the way, some do not.
async function unpacked() {
  const reply = await fetch('fmp.wasm.gz');
  if (!reply.ok) throw new Error(`the program fmp.wasm.gz is not beside this page (${reply.status}): make page writes it, and fmp serve --page shows it`);
  const packed = await reply.arrayBuffer();
  const first = new Uint8Array(packed, 0, Math.min(2, packed.byteLength));
  if (first[0] !== 0x1f || first[1] !== 0x8b) return packed;
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
}

const running = (async () => {
  const go = new Go(), loaded = fmpVector(go.importObject);
  const { instance } = await WebAssembly.instantiate(await unpacked(), go.importObject);
  loaded(instance);
  go.run(instance).then(() => postMessage({ ended: true }));
  await started;
})();

self.onmessage = async ({ data: { id, method, params, data, files } }) => {
  let out;
  try {
    await running;
    const named = files && new Map(files.map(f => [f.path, f.file]));
    const read = named && (path => new Uint8Array(new FileReaderSync().readAsArrayBuffer(named.get(path))));
    let last = 0;
    const progress = (done, all) => {
      if (performance.now() - last < 50 && done < all) return;
      last = performance.now();
      postMessage({ id, done, all });
    };
    out = self.fmpCall(method, JSON.stringify(params ?? {}), data ?? null, read ?? null, progress);
  } catch (e) {
    out = { error: String(e.message ?? e) };
  }
  postMessage({ id, out }, out.data ? [out.data.buffer] : []);
};

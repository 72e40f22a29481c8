// Starts programs under Node as the page does: node -r preload.js wasm_exec_node.js PROGRAM.
globalThis.self = globalThis;
require('node:vm').runInThisContext(require('node:fs').readFileSync(require('node:path').join(__dirname, '..', 'vector.js'), 'utf8'));
const instantiate = WebAssembly.instantiate;
WebAssembly.instantiate = async (bytes, imports) => {
  const loaded = self.fmpVector(imports), out = await instantiate(bytes, imports);
  loaded(out.instance);
  return out;
};

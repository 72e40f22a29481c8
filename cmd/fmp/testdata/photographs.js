// Photographs through onnxruntime-web, for TestPhotographsAgree: node photographs.js FOLDER MODEL, with the package where NODE_PATH says.
// Exits with 3 where it is missing.
'use strict';
const fs = require('fs');
const path = require('path');

let ort;
try {
  ort = require('onnxruntime-web');
} catch (e) {
  console.log('needs the npm package onnxruntime-web, in NODE_PATH');
  process.exit(3);
}

async function main(folder, model) {
  ort.env.wasm.numThreads = 1;
  const session = await ort.InferenceSession.create(fs.readFileSync(model), { executionProviders: ['wasm'] });
  const answers = {};
  for (const name of fs.readdirSync(folder).filter((f) => f.endsWith('.raw')).sort()) {
    const file = name.slice(0, -'.raw'.length);
    const shape = JSON.parse(fs.readFileSync(path.join(folder, file + '.shape')));
    const images = new ort.Tensor('uint8', new Uint8Array(fs.readFileSync(path.join(folder, name))), shape);
    const out = await session.run({ images }, ['probabilities']);
    answers[file] = Array.from(out.probabilities.data);
  }
  fs.writeFileSync(path.join(folder, 'onnxruntime-web.json'), JSON.stringify(answers));
}

main(process.argv[2], process.argv[3]).catch((e) => {
  console.error(e);
  process.exit(1);
});

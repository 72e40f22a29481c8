// Classifies photographs with a classifier of fmp pool: npm install onnxruntime-node sharp
// node classify.mjs classifier.onnx photo.jpg ...
import ort from 'onnxruntime-node'
import sharp from 'sharp'

const [, , model, ...names] = process.argv
const session = await ort.InferenceSession.create(model)
for (const name of names) {
  const photo = sharp(name).rotate().flatten({ background: 'white' }).toColourspace('srgb')
  const { data, info } = await photo.raw().toBuffer({ resolveWithObject: true })
  const images = new ort.Tensor('uint8', Uint8Array.from(data), [1, info.height, info.width, info.channels])
  const { probabilities } = await session.run({ images }, ['probabilities'])
  console.log(JSON.stringify({ file: name, probabilities: Array.from(probabilities.data) }))
}

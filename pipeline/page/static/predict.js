// Classification in the browser; where the program is not beside the page, by the server that shows it.
import { el, byId, show, fill, Program, fetched, problem, chooser, picture, failed, foot } from './common.js';

const lost = why => { if (state.data) open(state.data, why).catch(e => show('model', failed(e))); };
const program = new Program(lost);
const state = { data: null, info: null, below: .9, remote: null, queue: Promise.resolve() };
const at = path => '..' + path;

async function find() {
  let from;
  try {
    const { rounds } = JSON.parse(new TextDecoder().decode(await fetched(at('/v1/rounds'))));
    from = [at(`/v1/rounds/${rounds[0].round}/classifier.onnx`), `round ${rounds[0].round} on ${location.host}`];
  } catch { from = [at('/classifier.onnx'), location.host || 'this computer']; }
  try {
    const bar = el('progress', { max: 1, 'aria-label': 'Fetching the classifier' });
    show('model', el('p', {}, 'Fetching the classifier.'), bar);
    await open(await fetched(from[0], (n, all) => { if (all) { bar.max = all; bar.value = n; } }), '', from[1]);
  } catch (e) {
    byId('server').textContent = 'No classifier here';
    show('model', el('p', {}, 'This place has no classifier to fetch. Open one from this computer: the file that fmp pool writes.'), choose());
  }
}

const choose = () => chooser('Drop classifier.onnx here', [{ id: 'model-file', label: 'Choose classifier.onnx', accept: '.onnx' }], async files => {
  if (files.length === 0) return;
  try { await open(new Uint8Array(await files[0].file.arrayBuffer()), '', files[0].file.name); } catch (e) { show('model', failed(e), choose()); }
});

async function open(data, why, from) {
  state.info = await program.call('classifier', {}, { data });
  state.data = data;
  state.from = from ?? state.from;
  if (state.info.sets) state.below = 0;
  byId('server').textContent = `Classifier of ${state.from}`;
  byId('server').classList.add('on');
  showModel(why);
}

function showModel(why) {
  const m = state.info;
  const out = el('output', { for: 'below' }, state.below.toFixed(2));
  const rule = m.sets ? 'Its prediction sets hold the true class as often as stated; a set of several classes, or of none, is left to people.' : 'A photograph whose most probable class has less than this is left to people.';
  show('model', why && failed(new Error(why)),
    m.classes.length > 0 && el('ul', { class: 'chips', 'aria-label': 'Classes' }, m.classes.slice(0, 40).map(c => el('li', {}, c)), m.classes.length > 40 && el('li', {}, `and ${m.classes.length - 40} more`)),
    el('div', { class: 'line' }, el('label', { for: 'below' }, 'Left to people below'), el('input', { id: 'below', type: 'range', min: 0, max: 1, step: .01, value: state.below, oninput: e => { state.below = Number(e.target.value); out.value = state.below.toFixed(2); judge(); } }), out),
    el('p', { class: 'hint' }, rule),
    m.digest && el('p', { class: 'digest' }, 'Classifier, SHA-256 ', el('code', {}, m.digest)));
  show('photos', chooser('Drop photographs here', [
    { id: 'files', label: 'Choose photographs', multiple: true, accept: 'image/*,.tif,.tiff,.bmp,.webp' },
    { id: 'camera', label: 'Take a photograph', accept: 'image/*', capture: 'environment' }], take));
}

function take(files) {
  for (const { file } of files) {
    const body = el('div', { class: 'said' }, el('p', {}, 'Waiting.'));
    const card = el('article', { class: 'answer', 'aria-label': file.name }, el('div', { class: 'seen' }, picture(file, '')), body);
    byId('answers').prepend(card);
    state.queue = state.queue.then(async () => {
      body.replaceChildren(el('p', {}, 'Computing.'));
      try {
        card.prediction = state.remote ? await state.remote(file) : await program.call('predict', {}, { data: new Uint8Array(await file.arrayBuffer()) });
        card.name = file.name;
        say(card, body);
      } catch (e) { body.replaceChildren(failed(e)); }
    });
  }
}

const percent = p => p > .995 && p < 1 ? '> 99 %' : p > 0 && p < .005 ? '< 1 %' : `${Math.round(100 * p)} %`;

function verdict(p) {
  const top = Math.max(...p.probabilities), n = p.set?.filter(Boolean).length;
  if (p.set && n !== 1) return n === 0 ? 'Left to people: no class is like it' : `Left to people: ${n} classes are possible`;
  return top < state.below ? 'Left to people: not sure enough' : '';
}

function say(card, body) {
  const p = card.prediction, order = p.probabilities.map((_, i) => i).sort((a, b) => p.probabilities[b] - p.probabilities[a]);
  const bar = i => {
    const full = el('span', { class: 'fill' }), band = p.low && el('span', { class: 'band' });
    full.style.width = `${100 * p.probabilities[i]}%`;
    if (band) { band.style.left = `${100 * p.low[i]}%`; band.style.width = `${100 * Math.max(0, p.high[i] - p.low[i])}%`; }
    return el('div', { class: 'bar' }, el('span', {}, state.info.classes[i]), el('span', { class: 'track', 'aria-hidden': 'true' }, full, band), el('span', { class: 'n' }, percent(p.probabilities[i])));
  };
  const first = order[0], left = verdict(p);
  card.classList.toggle('left', left !== '');
  fill(body,
    el('p', { class: 'big' }, state.info.classes[first], ' ', el('span', { class: 'mute' }, percent(p.probabilities[first]))),
    p.low && el('p', { class: 'hint' }, `90 % credible interval ${percent(p.low[first])} to ${percent(p.high[first])}`),
    el('p', { class: left ? 'verdict left' : 'verdict' }, left || 'Answered'),
    p.set && el('p', { class: 'hint' }, `Prediction set: {${order.filter(i => p.set[i]).map(i => state.info.classes[i]).join(', ')}}`),
    el('div', { class: 'bars' }, order.slice(0, 3).map(bar)),
    el('p', { class: 'hint' }, `${card.name}, disagreement of the heads ${p.mutual_information.toFixed(3)} nats`));
}

function judge() { for (const card of byId('answers').children) if (card.prediction) say(card, card.querySelector('.said')); }

// remote lets the server that shows the page classify, where the program is not beside it.
async function remote() {
  const ready = await fetch(new URL(at('/v2/models/classifier/ready'), document.baseURI));
  if (!ready.ok) throw new Error('no classifier answers here');
  const ask = async file => {
    const reply = await fetch(new URL(at('/v1/predict'), document.baseURI), { method: 'POST', headers: { 'Content-Type': 'application/octet-stream' }, body: file });
    if (!reply.ok) throw new Error(await problem(reply));
    const { classes, predictions: [p] } = await reply.json();
    if (p.set && !state.info.sets) state.below = 0;
    state.info = { classes, sets: Boolean(p.set) };
    showModel();
    return { ...p, set: p.set && classes.map(c => p.set.includes(c)) };
  };
  state.info = { classes: [], sets: false }; // the first reply says
  state.remote = ask;
  byId('where').textContent = `The classifier runs on ${location.host}, to which photographs are sent: the program fmp.wasm.gz is not beside this page.`;
  byId('server').textContent = `Classifier on ${location.host}`;
  byId('server').classList.add('on');
  showModel();
}

for (const name of ['dragover', 'drop']) addEventListener(name, e => e.preventDefault());
foot(program).then(find, async e => {
  try { await remote(); } catch { byId('server').textContent = 'The program is missing'; show('model', failed(e)); }
});

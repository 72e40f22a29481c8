// Classification in the browser; where the program is not beside the page, by the server that shows it.
import { el, byId, show, fill, Program, chooser, picture, failed, foot, recall, save, duration } from './common.js';
import { placed, add } from './photos.js';
import { at, fetched, mostFile, patient, rounds } from './server.js';
import { t, translate } from './words.js';

translate();

const lost = why => { if (state.data) open(state.data, why).catch(e => show('model', failed(e))); };
const program = new Program(lost);
const state = { data: null, info: null, below: .9, remote: null, queue: Promise.resolve() };

async function find() {
  const opened = () => { if (state.data) throw new Error(); }; // its user gave a file meanwhile
  try {
    let from;
    const data = await patient(async () => {
      const list = await rounds(), [, round] = /"round":\s*(\d+)/.exec(new TextDecoder().decode(list)) ?? []; // it may have more digits than numbers here
      opened();
      from = round ? t('roundOn', { round, host: location.host }) : location.host || t('thisComputer');
      const bar = el('progress', { max: 1, 'aria-label': t('fetchingClassifier') });
      show('model', el('p', {}, t('fetchingClassifier')), bar);
      return fetched(at(round ? `/v1/rounds/${round}/classifier.onnx` : '/classifier.onnx'),
        { most: mostFile, progress: (n, all) => { if (all) { bar.max = all; bar.value = n; } } });
    }, (why, time) => {
      opened();
      show('model', el('p', { class: 'note' }, t('askedAgain', { why, time: duration(time) })), choose());
    });
    opened();
    await open(data, '', from);
  } catch (e) {
    if (state.data) return;
    const none = e.status === 404;
    byId('server').textContent = none ? t('noClassifier') : location.host;
    show('model', !none && failed(e), el('p', {}, t('openClassifier')), choose());
  }
}

const choose = () => chooser(t('drop', { file: 'classifier.onnx' }), [{ id: 'model-file', label: t('choose', { file: 'classifier.onnx' }), accept: '.onnx' }], async chosen => {
  const files = await chosen;
  if (files.length === 0) return;
  try { await open(new Uint8Array(await files[0].file.arrayBuffer()), '', files[0].file.name); } catch (e) { show('model', failed(e), choose()); }
});

async function open(data, why, from) {
  state.info = await program.call('classifier', {}, { data });
  state.data = data;
  state.from = from ?? state.from;
  if (state.info.sets) state.below = 0;
  byId('server').textContent = t('classifierOf', { from: state.from });
  byId('server').classList.add('on');
  showModel(why);
  showScore();
}

function showModel(why) {
  const m = state.info;
  const out = el('output', { for: 'below' }, state.below.toFixed(2));
  const rule = m.sets ? t('ruleSets') : t('ruleBelow');
  show('model', why && failed(new Error(why)),
    m.classes.length > 0 && el('ul', { class: 'chips', 'aria-label': t('classList') }, m.classes.slice(0, 40).map(c => el('li', {}, c)), m.classes.length > 40 && el('li', {}, t('andMore', { n: m.classes.length - 40 }))),
    el('div', { class: 'line' }, el('label', { for: 'below' }, t('below')), el('input', { id: 'below', type: 'range', min: 0, max: 1, step: .01, value: state.below, oninput: e => { state.below = Number(e.target.value); out.value = state.below.toFixed(2); judge(); } }), out),
    el('p', { class: 'hint' }, rule),
    m.digest && el('p', { class: 'digest' }, t('classifierDigest') + ' ', el('code', {}, m.digest)));
  show('photos', chooser(t('dropPhotographs'), [
    { id: 'files', label: t('choosePhotographs'), multiple: true, accept: 'image/*,.heic,.heif,.avif,.tif,.tiff,.bmp,.webp,.dcm,.dicom' },
    { id: 'camera', label: t('camera'), accept: 'image/*', capture: 'environment' }], take));
}

// --- evaluation: the classifier is scored on labelled photographs, and counts leave ---

function showScore(...more) {
  show('score', el('details', { class: 'card', ...(more.length > 0 && { open: true }) }, el('summary', {}, t('scoreTitle')), el('p', {}, t('scoreLead')),
    chooser(t('dropFolders'), [{ id: 'score-folder', label: t('chooseFolder'), webkitdirectory: true }], score), more));
}

// score shows the counts that would leave, and sends or saves them where their owner wants it.
async function score(chosen) {
  const files = await chosen;
  if (files.length === 0) return;
  const bar = el('progress', { max: 1, value: 0, 'aria-label': t('progress') });
  showScore(bar);
  try {
    const secret = await recall('key');
    if (!secret) throw new Error(t('scoreKey'));
    const { name } = await program.call('readKey', {}, { data: secret.slice() });
    const list = await rounds(); // without a server the counts are saved; one without an answer for now is an error
    if (list) await program.call('round', {}, { data: list });
    const known = new Map(), unsure = [];
    for (const { path, file } of files) {
      const within = placed(path, state.info.classes), [first] = path.split('/');
      if (!within && state.info.classes.includes(first)) unsure.push(path); // in folders of two classes
      else await add(known, within ?? path.slice(path.indexOf('/') + 1), file);
    }
    const { report: r, others, copies, path, headers, data } = await program.call('evaluate', { paths: [...known.keys()] }, { files: [...known].map(([path, file]) => ({ path, file })), progress: (done, all) => { bar.max = all; bar.value = done; } });
    const sent = el('p', { 'aria-live': 'polite' }), left = { n: others.n + unsure.length, names: [...unsure.slice(0, 5), ...others.names ?? []] };
    const table = (head, rows) => el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': head[0] }, el('table', {}, el('thead', {}, el('tr', {}, head.map(h => el('th', { scope: 'col' }, h)))), el('tbody', {}, rows.map(row => el('tr', {}, row.map((c, i) => el(i ? 'td' : 'th', i ? {} : { scope: 'row' }, String(c ?? '–'))))))));
    showScore(el('p', {}, t('scoreWhat', { name, least: r.least })),
      left.n > 0 && el('p', { class: 'note' }, t('othersLeft', { n: left.n, names: left.names.join(', ') + (left.n > left.names.length ? ' …' : '') }) + '.'),
      copies > 0 && el('p', { class: 'note' }, t('copies', { photographs: t('photographs', { n: copies }) })),
      table([t('classList'), t('photos'), t('right')], r.groups.map(g => [g.classes.map(c => state.info.classes[c]).join(', '), g.n, r.few ? null : g.right])),
      r.few && el('p', { class: 'hint' }, t('scoreFew', { least: r.least })),
      el('details', {}, el('summary', {}, t('scoreFile')), el('pre', { tabindex: '0', lang: 'en' }, new TextDecoder().decode(data))),
      el('div', { class: 'buttons' },
        path && el('button', { type: 'button', id: 'score-send', onclick: async () => {
          try {
            await fetched(at(path), { method: 'PUT', headers, body: data });
            fill(sent, t('scoreSent'));
          } catch (e) { fill(sent, failed(e)); }
        } }, t('scoreSend')),
        el('button', { type: 'button', class: 'quiet', onclick: () => save(`${name.replace(/[^\w.-]/g, '_')}.evaluation.json`, data, 'application/json') }, t('scoreSave'))), sent);
  } catch (e) { showScore(failed(e)); }
}

async function take(files) {
  for (const { file } of await files) {
    const body = el('div', { class: 'said' }, el('p', {}, t('waiting')));
    const card = el('article', { class: 'answer', 'aria-label': file.name }, el('div', { class: 'seen' }, picture(file, '')), body);
    byId('answers').prepend(card);
    state.queue = state.queue.then(async () => {
      body.replaceChildren(el('p', {}, t('computing')));
      try {
        card.prediction = state.remote ? await state.remote(file) : await program.call('predict', { name: file.name }, { data: new Uint8Array(await file.arrayBuffer()) });
        card.name = file.name;
        say(card, body);
      } catch (e) { body.replaceChildren(failed(e)); }
    });
  }
}

// agreement says in words how far the heads of the classifier differ: their mutual information as a share of the most there can be.
function agreement(p) {
  const share = p.mutual_information / Math.log(p.probabilities.length);
  return share < .002 ? t('agree') : share < .02 ? t('differSome') : t('differMuch');
}

const percent = p => p > .995 && p < 1 ? '> 99 %' : p > 0 && p < .005 ? '< 1 %' : `${Math.round(100 * p)} %`;

function verdict(p) {
  const top = Math.max(...p.probabilities), n = p.set?.filter(Boolean).length;
  if (p.set && n !== 1) return n === 0 ? t('leftNone') : t('leftSeveral', { classes: t('classes', { n }) });
  return top < state.below ? t('leftUnsure') : '';
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
    p.low && el('p', { class: 'hint' }, t('interval', { low: percent(p.low[first]), high: percent(p.high[first]) })),
    el('p', { class: left ? 'verdict left' : 'verdict' }, left || t('answered')),
    p.set && el('p', { class: 'hint' }, t('set', { classes: order.filter(i => p.set[i]).map(i => state.info.classes[i]).join(', ') || '–' })),
    el('div', { class: 'bars' }, order.slice(0, 3).map(bar)),
    el('p', { class: 'hint' }, `${card.name}. ${agreement(p)}`));
}

function judge() { for (const card of byId('answers').children) if (card.prediction) say(card, card.querySelector('.said')); }

// remote lets the server that shows the page classify, where the program is not beside it.
async function remote() {
  await fetched(at('/v2/models/classifier/ready'));
  const ask = async file => {
    const reply = await fetched(at('/v1/predict'), { most: mostFile, method: 'POST', headers: { 'Content-Type': 'application/octet-stream' }, body: file });
    const { classes, predictions: [p] } = JSON.parse(new TextDecoder().decode(reply));
    if (p.set && !state.info.sets) state.below = 0;
    state.info = { classes, sets: Boolean(p.set) };
    showModel();
    return { ...p, set: p.set && classes.map(c => p.set.includes(c)) };
  };
  state.info = { classes: [], sets: false }; // the first reply says
  state.remote = ask;
  byId('where').textContent = t('runsThere', { host: location.host });
  byId('server').textContent = t('classifierOf', { from: location.host });
  byId('server').classList.add('on');
  showModel();
}

for (const name of ['dragover', 'drop']) addEventListener(name, e => e.preventDefault());
foot(program).then(find, async e => {
  try { await remote(); } catch { byId('server').textContent = t('noProgram'); show('model', failed(e)); }
});

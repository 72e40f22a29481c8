// A client in the browser: round, name, photographs, what leaves, and the sending of it.
import { el, byId, show, plural, bytes, duration, Program, recall, keep, spend, save, fetched, problem, chooser, picture, failed, foot } from './common.js';
import { fixed } from './fixed.js';

const few = 5;          // images behind a mean below which the page warns: a mean of one is that image's own features
const mostThumbs = 9;   // of a class
const mostLoose = 400;  // that are shown to be sorted
const mostRows = 60;    // of the picture
const mostSeconds = 86400; // to a private upload

const state = { round: null, rounds: null, graph: null, graphData: null, key: null, secret: null, name: '', photos: new Map(), loose: [], upload: null, summary: null, receipt: null, busy: false, reply: 60 };
const program = new Program(why => { if (state.graph) reopen(why); });
const at = path => '..' + path; // the page lies in a folder of the server's

const active = (id, on) => { byId(id).inert = !on; byId(id).classList.toggle('off', !on); };

function refresh() {
  const ready = state.graph && !state.graph.refused;
  active('step-name', ready);
  active('step-photos', ready && state.name);
  active('step-leaves', ready && state.name && (state.photos.size > 0 || state.upload));
  active('step-send', ready && state.upload);
}

// reopen starts the program again after it failed, with what it had open.
async function reopen(why) {
  try {
    if (state.rounds) await program.call('round', {}, { data: state.rounds });
    await openGraph(state.graphData, true);
    if (state.secret) await program.call('readKey', {}, { data: state.secret });
  } catch (e) { show('round', failed(e)); }
  if (state.busy) show('leaves', failed(new Error(why)), computeButton());
  state.busy = false;
}

// --- the round ---

// findHere looks for a client graph beside the page, as fmp-edge page writes it.
async function findHere() {
  try {
    state.here = JSON.parse(new TextDecoder().decode(await fetched('round.json')));
  } catch { return false; }
  byId('server').textContent = `Round ${state.here.round}: the upload is saved`;
  byId('server').classList.add('on');
  show('round', el('p', {}, 'Fetching the client graph.'));
  try {
    await openGraph(await fetched('client.onnx'));
  } catch (e) { show('round', failed(e)); }
  return true;
}

async function findRound() {
  let list;
  try {
    list = await fetched(at('/v1/rounds'));
  } catch {
    if (await findHere()) return;
    byId('server').textContent = 'No server: the upload is saved';
    show('round', el('p', {}, 'No server is behind this page. Open the client graph that the people of the round sent you; the upload is then saved as a file for them.'),
      chooser('Drop client.onnx here', [{ id: 'graph-file', label: 'Choose client.onnx', accept: '.onnx' }], takeGraph));
    return;
  }
  state.rounds = list;
  try {
    const d = state.round = await program.call('round', {}, { data: list });
    byId('server').textContent = `Round ${d.round} on ${location.host}`;
    byId('server').classList.add('on');
    const bar = el('progress', { max: 1, value: 0, 'aria-label': 'Fetching the client graph' });
    show('round', el('p', {}, `Fetching the client graph, ${bytes(d.graph_bytes)}.`), bar);
    const data = await fetched(at(d.graph_path), n => { bar.value = n / d.graph_bytes; });
    if (d.privacy) { state.limit = await recall('limit'); state.reply = await recall('reply') ?? state.reply; }
    await openGraph(data);
  } catch (e) { show('round', failed(e)); }
}

async function takeGraph(files) {
  if (files.length === 0) return;
  show('round', el('p', {}, `Taking ${files[0].file.name} apart.`));
  try {
    await openGraph(new Uint8Array(await files[0].file.arrayBuffer()));
  } catch (e) {
    await findRound();
    byId('round').prepend(failed(e));
  }
}

const numberOf = () => (state.round ?? state.here)?.round ?? 0;

async function openGraph(data, again) {
  state.graphData = data;
  state.graph = await program.call('open', { digest: (state.round ?? state.here)?.graph ?? '', approved: await recall('approved') ?? '' }, { data });
  await judged();
  if (!again) await showName();
}

async function judged() {
  if (state.graph.approved) await keep('approved', state.graph.approved);
  showRound();
  refresh();
}

function showRound() {
  const d = state.round, g = state.graph;
  const where = g.shipped ? `known to this program (${g.shipped})` : g.refused ? 'not approved' : 'approved before';
  const closed = d?.state === 'closed';
  show('round',
    d && el('p', { class: 'big' }, d.title || `Round ${d.round}`),
    state.here && el('p', { class: 'big' }, `Round ${state.here.round}`), state.here && el('p', {}, 'No server is behind this page: it saves the upload as a file for the people of the round.'),
    d && el('p', {}, closed ? 'It is closed; an upload that you made before can be asked after.' : d.state === 'late' ? 'Its deadline has passed; late uploads count.' : `Open until ${new Date(d.deadline).toLocaleString()}.`),
    el('ul', { class: 'chips', 'aria-label': 'Classes' }, g.classes.slice(0, 40).map(c => el('li', {}, c)), g.classes.length > 40 && el('li', {}, `and ${g.classes.length - 40} more`)),
    g.refused && el('div', { class: 'note bad', role: 'alert' },
      el('p', {}, `Not yet: ${g.refused}. Nothing was read.`),
      el('p', {}, `It has ${g.numbers.toLocaleString('en')} parameters (${bytes(g.bytes)}) and makes ${g.features.toLocaleString('en')} numbers of the ${g.pixels.toLocaleString('en')} of an image. ${g.can}`),
      el('p', {}, 'Let it run only where the digest is the one that you were told by people whom you trust.'),
      el('button', { type: 'button', class: 'quiet', id: 'approve', onclick: async () => { state.graph = await program.call('approve', {}); await judged(); } }, 'Let this extractor run on my photographs')),
    el('details', {}, el('summary', {}, 'What runs on your photographs'),
      el('p', {}, 'The graph was taken apart here. All but its extractor is, node by node, what the program itself makes; the extractor reads pixels and nothing else.'),
      el('dl', {},
        el('dt', {}, 'Extractor'), el('dd', {}, el('code', {}, g.extractor), `, ${where}`),
        el('dt', {}, 'It computes'), el('dd', {}, `${g.features.toLocaleString('en')} numbers of an image of ${g.height} × ${g.width} pixels, in ${g.nodes} nodes with ${g.numbers.toLocaleString('en')} constants`),
        el('dt', {}, 'Client graph'), el('dd', {}, el('code', {}, g.digest)))));
}

// --- the name and key ---

async function showName() {
  const pem = await recall('key');
  if (pem && !state.key) {
    try {
      state.key = await program.call('readKey', {}, { data: pem });
      state.secret = pem;
    } catch (e) { show('name', failed(e)); }
  }
  if (state.key) {
    state.name = state.key.name;
    const line = el('code', { id: 'line' }, state.key.line);
    show('name',
      el('p', { class: 'big' }, state.key.name),
      el('p', {}, 'Your key was made in this browser and is kept in it. The server’s people need this line, its public half, once:'),
      el('div', { class: 'copy' }, line, el('button', { type: 'button', class: 'quiet', onclick: async e => {
        try { await navigator.clipboard.writeText(state.key.line); e.target.textContent = 'Copied'; } catch { getSelection().selectAllChildren(line); }
      } }, 'Copy')),
      el('div', { class: 'buttons' },
        el('button', { type: 'button', class: 'quiet', onclick: () => save(`${state.key.name.replace(/[^\w.-]/g, '_')}.key`, state.secret) }, 'Save the key file'),
        el('button', { type: 'button', class: 'quiet', onclick: () => { nameForm(); } }, 'Use another name or key')));
    await recallUpload();
  } else nameForm();
  refresh();
}

function nameForm() {
  const input = el('input', { id: 'client', type: 'text', maxlength: 128, autocomplete: 'organization', spellcheck: 'false', placeholder: 'shop-17', required: true });
  const fault = el('div', {});
  const use = async got => {
    try {
      const { data, ...k } = await got();
      state.secret = data ?? state.secret;
      state.key = k;
      await keep('key', state.secret);
      dropUpload();
      await showName();
    } catch (e) { fault.replaceChildren(failed(e)); }
  };
  show('name', el('form', { class: 'line', onsubmit: e => { e.preventDefault(); use(() => program.call('newKey', { name: input.value })); } },
    el('label', { for: 'client' }, 'The name by which the round knows you'), input,
    el('button', { type: 'submit' }, 'Make my key')), fault,
  chooser('or bring the key file that fmp keys or fmp-edge key made', [{ id: 'key-file', label: 'Use a key file' }], files => files.length && use(async () => {
    const data = new Uint8Array(await files[0].file.arrayBuffer());
    return { ...await program.call('readKey', {}, { data: data.slice() }), data };
  })));
}

// --- photographs ---

const classOf = name => {
  const g = state.graph, i = g.classes.indexOf(name);
  if (i >= 0) return i;
  return /^\+?\d+$/.test(name) && Number(name) < g.classes.length ? Number(name) : -1;
};

// place puts photographs under their class's folder, or beside, to be sorted.
function place(files) {
  dropUpload();
  for (const { path, file } of files) {
    const parts = path.split('/');
    const from = parts.slice(0, -1).findIndex(p => classOf(p) >= 0);
    if (from >= 0) add(parts.slice(from).join('/'), file);
    else if (!parts.some(p => p.startsWith('.'))) state.loose.push({ path, file, note: parts.length > 1 ? parts.at(-2) : '' });
  }
  listed();
}

function add(path, file) {
  const dot = path.lastIndexOf('.');
  for (let n = 2; state.photos.has(path) && state.photos.get(path) !== file; n++) path = `${path.slice(0, dot < 0 ? undefined : dot).replace(/ \(\d+\)$/, '')} (${n})${dot < 0 ? '' : path.slice(dot)}`;
  state.photos.set(path, file);
}

// listed asks the program which files are images, by its rules, and shows them.
async function listed() {
  let items = [], others = { n: 0 }, fault;
  if (state.photos.size > 0) {
    try {
      ({ items, others } = await program.call('list', { paths: [...state.photos.keys()] }));
    } catch (e) { fault = e; }
  }
  const of = state.graph.classes.map(() => []);
  for (const i of items) of[i.label].push(i.path);
  state.counts = of.map(p => p.length);
  const total = items.reduce((n, i) => n + state.photos.get(i.path).size, 0);
  state.size = total;
  const rows = of.map((paths, c) => paths.length > 0 && el('li', { class: 'class' },
    el('div', {}, el('strong', {}, state.graph.classes[c]), el('span', {}, ` ${plural(paths.length, 'photograph')}`),
      paths.length < few && el('span', { class: 'warn' }, paths.length === 1 ? ' one alone: its average is the photograph’s own numbers' : ' few: an average of few tells more of each')),
    el('div', { class: 'thumbs' }, paths.slice(0, mostThumbs).map(p => picture(state.photos.get(p), '')), paths.length > mostThumbs && el('span', { class: 'more' }, `+${(paths.length - mostThumbs).toLocaleString('en')}`)),
    el('button', { type: 'button', class: 'quiet', 'aria-label': `Take out ${state.graph.classes[c]}`, onclick: () => { for (const p of paths) state.photos.delete(p); dropUpload(); listed(); } }, 'Take out')));
  show('photos',
    chooser('Drop folders of photographs here, one folder a class', [
      { id: 'folder', label: 'Choose a folder', webkitdirectory: true },
      { id: 'files', label: 'Choose loose photographs', multiple: true, accept: 'image/*,.heic,.heif,.avif,.tif,.tiff,.bmp,.webp' }], place),
    fault && failed(fault),
    items.length > 0 && el('p', { id: 'counted' }, `${plural(items.length, 'photograph')}, ${bytes(total)}, in ${plural(state.counts.filter(n => n > 0).length, 'class', 'classes')}.`, others.n > 0 && ` ${plural(others.n, 'file is', 'files are')} left out: ${others.names.join(', ')}${others.n > others.names.length ? ' and more' : ''}.`),
    el('ul', { class: 'classes' }, rows),
    state.loose.length > 0 && sorter());
  showLeaves();
  refresh();
}

// sorter lets loose photographs be sorted by clicking: a class is chosen, and every photograph that is clicked goes there.
function sorter() {
  state.into ??= 0;
  const radios = state.graph.classes.map((c, i) => el('label', {}, el('input', { type: 'radio', name: 'into', value: i, ...(i === state.into && { checked: true }), onchange: () => { state.into = i; say(); } }), el('span', {}, c)));
  const heading = el('h3', {});
  const say = () => { heading.textContent = `${plural(state.loose.length, 'photograph')} to sort: click those of “${state.graph.classes[state.into]}”`; };
  say();
  const tiles = state.loose.slice(0, mostLoose).map(l => {
    const b = el('button', { type: 'button', class: 'tile', 'aria-label': `${l.file.name}${l.note && `, of folder ${l.note}`}`, title: l.path, onclick: () => {
      state.loose.splice(state.loose.indexOf(l), 1);
      add(`${state.graph.classes[state.into]}/${l.file.name}`, l.file);
      dropUpload();
      (b.nextElementSibling ?? b.previousElementSibling)?.focus();
      b.remove();
      say();
      clearTimeout(state.later);
      state.later = setTimeout(listed, 400);
    } }, picture(l.file, ''));
    return b;
  });
  return el('div', { class: 'sorter' }, heading, el('fieldset', { class: 'into' }, el('legend', {}, 'Class of the photographs that you click'), radios), el('div', { class: 'tiles' }, tiles),
    state.loose.length > mostLoose && el('p', {}, `and ${(state.loose.length - mostLoose).toLocaleString('en')} more, shown when these are sorted.`),
    el('button', { type: 'button', class: 'quiet', onclick: () => { state.loose = []; listed(); } }, 'Leave these out'));
}

// --- what leaves ---

const uploadName = () => `upload ${state.graph.digest} ${numberOf()} ${state.name}`;

const budget = () => state.round?.privacy;

function dropUpload() { state.upload = state.summary = state.receipt = null; show('send'); }

// recallUpload shows the upload that was made before for this round and name: another would be refused where the first is in.
async function recallUpload() {
  const data = await recall(uploadName());
  if (data) {
    try {
      state.summary = await program.call('explain', {}, { data: data.slice() });
      state.upload = data;
      state.receipt = await recall(uploadName() + ' receipt');
    } catch { /* it was of another round */ }
  }
  await listed();
}

const computeButton = () => el('div', { class: 'buttons' }, el('button', { type: 'button', id: 'compute', onclick: compute }, state.upload ? 'Compute it anew' : 'Compute the upload'), el('span', { class: 'hint' }, 'Nothing is sent by this.'));

// limits asks how much private rounds may spend in all, and says where it is counted.
function limits() {
  const b = budget();
  const input = el('input', { id: 'limit', type: 'number', min: 0, step: 'any', required: true, ...(state.limit && { value: state.limit }), oninput: () => { state.limit = input.value; } });
  const reply = el('input', { id: 'reply', type: 'number', min: 2, max: mostSeconds, step: 'any', required: true, value: state.reply, oninput: () => { state.reply = reply.value; } });
  return el('div', { class: 'note', id: 'private' },
    el('p', {}, `This round is private: it spends epsilon ${b.epsilon} (delta ${b.delta}) on ${b.unit === 'client' ? 'all your photographs together' : 'each photograph'}. `,
      b.noise === 'local' ? 'This browser adds the noise before anything leaves.' : 'The server adds the noise, and sees the sums without it.'),
    el('div', { class: 'line' }, el('label', { for: 'limit' }, `Most epsilon that rounds may spend on ${b.unit === 'client' ? 'you' : 'any photograph'}, in all`), input),
    el('div', { class: 'line' }, el('label', { for: 'reply' }, 'Seconds until the upload is there, however long the photographs take'), reply),
    el('p', {}, 'The time from the start to the upload, or to the error in its place, tells nothing of the photographs where it is fixed. Allow more than they take at most.'),
    el('p', {}, 'A ledger in this browser adds up what was spent at this address. Clearing the site’s data, another browser, another address and fmp-edge begin at nothing.',
      state.unsafe && ' This browser has not promised to keep it: where space is short it may clear it.'));
}

function showLeaves() {
  if (state.busy) return;
  if (state.upload) { showSummary(); return; }
  const ask = budget() && state.photos.size > 0 && limits();
  show('leaves', el('p', {}, state.photos.size > 0 ? 'The network runs over the photographs in this page. Then you see every number that would leave.' : 'Choose photographs first.'), ask, state.photos.size > 0 && computeButton());
}

// made takes an upload that was just made. A private one is kept together with its line of the ledger, before it is shown or can be sent; of
// one that was made before of the same photographs the kept bytes are taken.
async function made({ data, ...summary }, ledger) {
  const name = uploadName();
  if (!budget()) {
    await keep(name, data.slice());
    await keep(name + ' receipt', undefined);
  } else if (summary.spent.again) {
    const { path, sha256 } = summary.spent.again;
    data = await recall(path);
    summary = data && await program.call('explain', {}, { data: data.slice() });
    if (summary?.digest !== sha256) throw new Error('The upload of these photographs was made before and is not in this browser any more. Noise that is drawn again spends the budget again: nothing is made.');
    state.receipt = await recall(path + ' receipt');
  } else {
    try {
      await spend(ledger, summary.spent.line, name, data.slice());
    } catch { throw new Error('Another page of this address spent meanwhile, or the browser could not keep the ledger. Nothing was kept and nothing spent: compute again.'); }
  }
  state.upload = data;
  state.summary = summary;
}

async function compute() {
  let ledger;
  if (budget()) {
    state.limit = byId('limit').value;
    state.reply = byId('reply').value;
    await keep('limit', state.limit);
    await keep('reply', state.reply);
    ledger = await recall('ledger') ?? '';
    state.unsafe = !await navigator.storage?.persist?.();
  }
  const paths = [...state.photos.keys()], start = performance.now(), skip = byId('skip')?.checked ?? false;
  const bar = el('progress', { max: 1, value: 0, 'aria-label': 'Photographs computed' }), text = el('p', { 'aria-live': 'off' }, 'Reading the first photographs.');
  state.busy = true;
  const stopped = 'Stopped; nothing was kept.';
  let halt;
  const halted = new Promise((_, reject) => { halt = () => { program.stop(stopped); reject(new Error(stopped)); }; });
  halted.catch(() => {});
  show('leaves', text, bar, el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'quiet', onclick: halt }, 'Stop')));
  const call = async () => program.call('compress', { paths, name: state.name, round: numberOf(), skip,
    ...(budget() && { ledger, maxEpsilon: Number(state.limit), kept: uploadName(), made: await recall(uploadName()) !== undefined }) },
    { files: paths.map(path => ({ path, file: state.photos.get(path) })), progress: (done, all) => {
      const rate = done / ((performance.now() - start) / 1000);
      bar.max = all; bar.value = done;
      text.textContent = `${done.toLocaleString('en')} of ${plural(all, 'photograph')}, ${rate.toPrecision(2)} a second, ${done < all ? duration((all - done) / rate) + ' left' : budget() ? `the upload is there ${plural(Number(state.reply), 'second')} after the start` : 'last sums'}.`;
    } });
  try {
    if (budget() && !(Number(state.reply) >= 2 && Number(state.reply) <= mostSeconds)) throw new Error(`The time until the upload is there is ${state.reply} seconds; allowed are 2 to ${mostSeconds}.`);
    const late = () => program.stop(`The photographs took longer than ${state.reply} seconds: nothing was kept and nothing spent. Allow more, or give fewer.`);
    await made(await Promise.race([halted, budget() ? fixed(Number(state.reply), call, late) : call()]), ledger);
    state.seconds = (performance.now() - start) / 1000;
    state.busy = false;
    showSummary();
  } catch (e) {
    state.busy = false;
    show('leaves', failed(e), budget() && limits(), el('label', { class: 'check' }, el('input', { type: 'checkbox', id: 'skip' }), ' Leave out photographs that cannot be read'), computeButton());
  }
  refresh();
}

// showRelease shows a private upload. It is made once: there is no button to make another.
async function showRelease() {
  const s = state.summary, b = s.budget, local = b.noise === 'local';
  const ledger = await recall('ledger') ?? '';
  show('leaves',
    el('figure', {}, el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'All sums that leave' }, heatmap(s)),
      el('figcaption', {}, `Every number that leaves: for each class the sum of ${plural(s.features, 'number')} of its photographs as shades (blue below zero, orange above) and a count${local ? ', both with noise' : ''}. ${bytes(s.bytes)} in all.`)),
    el('ul', { class: 'facts' },
      el('li', {}, `that you, “${s.client}”, take part in round ${s.round}`),
      el('li', {}, `${plural(s.points.length, 'sum')} of ${plural(s.features, 'number')} and a count, of every class, whether or not you have photographs of it`),
      el('li', {}, 'no photograph, no file name and no number of photographs')),
    el('p', { id: 'promise' }, s.promise),
    s.spent && el('p', { id: 'spent' }, `Spent in all, with ${plural(s.spent.earlier, 'earlier release')} at this address: epsilon ${s.spent.epsilon.toPrecision(3)} of ${state.limit}.`),
    s.zeros > 0 && el('p', { class: 'note' }, `Of ${plural(s.zeros, 'photograph')} the network made no finite numbers; they count as zeros.`),
    s.left?.length > 0 && el('details', {}, el('summary', {}, `${plural(s.left.length, 'photograph was', 'photographs were')} left out`), el('ul', {}, s.left.map(l => el('li', {}, l)))),
    el('p', { class: 'digest' }, 'SHA-256 ', el('code', { id: 'digest' }, s.digest), ', made once: noise that is drawn again spends again'),
    el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'quiet', id: 'save-ledger', onclick: () => save('spent.jsonl', ledger, 'application/jsonl') }, 'Save the ledger')));
  showSend();
  refresh();
}

function showSummary() {
  if (state.summary.budget) { showRelease(); return; }
  const s = state.summary, g = state.graph, share = state.size ? s.bytes / state.size : 0;
  const side = share ? Math.max(.6, 100 * Math.sqrt(share)) : 0;
  const dot = el('span', { class: 'dot' });
  dot.style.width = dot.style.height = `${side}%`;
  const alone = s.points.filter(p => p.images < few - .5);
  const heat = heatmap(s);
  show('leaves',
    el('div', { class: 'balance' },
      el('div', { class: 'stays' }, el('span', { class: 'figure' }, state.size ? bytes(state.size) : 'All'), el('span', {}, state.size ? `${plural(s.images, 'photograph')} stay here` : 'photographs stay here')),
      el('div', { class: 'area', role: 'img', 'aria-label': share ? `The upload has ${(100 * share).toPrecision(2)} per cent of the photographs’ bytes` : 'The upload' }, dot),
      el('div', { class: 'goes' }, el('span', { class: 'figure', id: 'leaving-bytes' }, bytes(s.bytes)), el('span', {}, share ? `leave, ${(100 * share).toPrecision(2)} % of that; the square is drawn to scale` : 'leave'))),
    el('figure', {}, el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'All averages that leave' }, heat),
      el('figcaption', {}, `Every number that leaves of the averages: a line for each, its ${plural(s.features, 'number')} as shades (blue below zero, orange above).`)),
    el('ul', { class: 'facts' },
      el('li', {}, `that you, “${s.client}”, take part${state.round || state.here ? ` in round ${s.round}` : ''} with ${plural(s.images, 'photograph')}, and how many of each class`),
      el('li', {}, `${plural(s.points.length, 'average')} of ${plural(s.features, 'number')} each, in ${s.precision}`),
      s.scatter > 0 && el('li', {}, `how these numbers scatter within classes: ${s.scatter.toLocaleString('en')} numbers`),
      s.curves > 0 && el('li', {}, `how well the photographs tell each other's classes, in sums over them: ${s.curves} numbers`),
      s.singles?.length > 0 && el('li', { class: 'warn' }, `the numbers of ${plural(s.singles.length, 'single photograph')}, by which the server sets how sure it may be`),
      el('li', {}, 'no photograph and no file name')),
    el('p', {}, 'The upload is not private: a person who has a photograph can test whether it is behind the averages, and the better the fewer photographs are behind one.'),
    alone.length > 0 && el('p', { class: 'note' }, `Few photographs are behind ${alone.map(p => `${g.classes[p.class]} (${Math.round(p.images)})`).join(', ')}. The average of one photograph is that photograph’s own numbers.`),
    s.zeros > 0 && el('p', { class: 'note' }, `Of ${plural(s.zeros, 'photograph')} the network made no finite numbers; they count as zeros.`),
    s.left?.length > 0 && el('details', {}, el('summary', {}, `${plural(s.left.length, 'photograph was', 'photographs were')} left out`), el('ul', {}, s.left.map(l => el('li', {}, l)))),
    el('p', { class: 'digest' }, 'SHA-256 ', el('code', { id: 'digest' }, s.digest), state.seconds ? `, made in ${duration(state.seconds)}` : ', made earlier'),
    state.photos.size > 0 && computeButton());
  showSend();
  refresh();
}

// heatmap draws the points of an upload, a line each.
function heatmap(s) {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map(h => parseInt(h, 16));
  const below = colour('--cool'), zero = colour('--soft'), above = colour('--warm');
  const rows = [...s.points, ...s.singles ?? []].slice(0, mostRows);
  const shades = rows.map(r => Uint8Array.from(atob(r.shades), c => c.charCodeAt(0)));
  return el('table', { class: 'heat' }, el('tbody', {}, rows.map((r, i) => {
    const n = shades[i].length, canvas = el('canvas', { width: n, height: 1, 'aria-hidden': 'true' });
    const image = new ImageData(n, 1);
    shades[i].forEach((v, k) => {
      const t = (v - 128) / 127, to = t < 0 ? below : above, a = Math.sqrt(Math.min(1, Math.abs(t)));
      for (let c = 0; c < 3; c++) image.data[4 * k + c] = zero[c] + a * (to[c] - zero[c]);
      image.data[4 * k + 3] = 255;
    });
    canvas.getContext('2d').putImageData(image, 0, 0);
    return el('tr', {}, el('th', { scope: 'row' }, state.graph.classes[r.class]), el('td', {}, s.budget ? `count ${r.images.toFixed(1)}` : i < s.points.length ? plural(Math.round(r.images), 'photograph') : 'one single'), el('td', { class: 'strip' }, canvas));
  }), s.points.length + (s.singles?.length ?? 0) > mostRows && el('tr', {}, el('th', { scope: 'row' }, 'and'), el('td', { colspan: 2 }, `${s.points.length + (s.singles?.length ?? 0) - mostRows} lines more`))));
}

// --- sending ---

const fileName = kind => `${state.name.replace(/[^\w.-]/g, '_')}${state.round || state.here ? '.' + numberOf() : ''}.${kind}`;
const saveButton = () => el('button', { type: 'button', id: 'save', class: state.round ? 'quiet' : '', onclick: () => save(fileName('upload'), state.upload, 'application/vnd.fmp.upload') }, 'Save the upload as a file');

function showSend(fault) {
  if (state.receipt) { showReceipt(); return; }
  const closed = state.round?.state === 'closed';
  show('send', fault,
    state.round ? el('p', {}, `It goes to ${location.host} once, signed with your key. ${state.round.replace ? 'Until the deadline another may replace it.' : 'It cannot be replaced.'} ${state.round.withdrawal ? 'It can be withdrawn at any time, with the file of your key (fmp-edge withdraw).' : 'It cannot be withdrawn: one noisy sum hides it among the others.'}`)
      : el('p', {}, 'Save it, and bring it to the people of the round: fmp pool reads it.'),
    el('div', { class: 'buttons' }, state.round && !closed && el('button', { type: 'button', id: 'send-upload', onclick: send }, `Send ${bytes(state.upload.length)}`), saveButton()));
}

const pause = (ms, signal) => new Promise((ok, no) => { const t = setTimeout(ok, ms); signal.addEventListener('abort', () => { clearTimeout(t); no(new Error('Stopped; the server may or may not have it. Sending the same upload again is safe.')); }); });

async function send() {
  const stop = new AbortController(), say = el('p', {}, 'Sending.');
  show('send', say, el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'quiet', onclick: () => stop.abort() }, 'Stop'), saveButton()));
  try {
    const { path, headers, digest } = await program.call('sign', {}, { data: state.upload.slice() });
    for (let wait = 500; ; wait = Math.min(2 * wait, 60000)) {
      let why;
      try {
        const reply = await fetch(new URL(at(path), document.baseURI), { method: 'PUT', headers, body: state.upload, signal: stop.signal });
        if (reply.ok) {
          const { data } = await program.call('receipt', { digest }, { data: new Uint8Array(await reply.arrayBuffer()) });
          state.receipt = data;
          await keep(uploadName() + ' receipt', data);
          showReceipt();
          return;
        }
        why = await problem(reply);
        if (![408, 429, 500, 502, 503, 504].includes(reply.status)) {
          throw Object.assign(new Error(reply.status === 403 ? `${why}. If you are new, the server’s people must first add your line (under “You”).` : why), { final: true });
        }
      } catch (e) {
        if (e.final || stop.signal.aborted || !(e instanceof TypeError)) throw e;
        why = 'the server cannot be reached';
      }
      say.textContent = `Not yet: ${why}. Again in ${duration(wait / 1000)}; the same upload may be sent any number of times.`;
      await pause(wait * (.5 + Math.random() / 2), stop.signal);
    }
  } catch (e) { showSend(failed(e.name === 'AbortError' ? new Error('Stopped; the server may or may not have it. Sending the same upload again is safe.') : e)); }
}

function showReceipt() {
  const r = JSON.parse(new TextDecoder().decode(state.receipt));
  show('send', el('div', { class: 'receipt' },
    el('p', { class: 'big good' }, el('span', { class: 'tick', 'aria-hidden': 'true' }, '✓'), ' The server has your upload'),
    el('p', {}, 'Its receipt is signed by the server’s key, and the signature was verified in this page.'),
    el('dl', {}, el('dt', {}, 'Since'), el('dd', {}, new Date(r.time).toLocaleString()), el('dt', {}, 'Upload'), el('dd', {}, el('code', {}, r.upload)), el('dt', {}, 'Server’s key'), el('dd', {}, el('code', {}, r.server))),
    el('div', { class: 'buttons' }, el('button', { type: 'button', id: 'save-receipt', class: 'quiet', onclick: () => save(fileName('receipt.json'), state.receipt, 'application/json') }, 'Save the receipt'), saveButton(),
      el('a', { href: 'predict.html' }, 'Classify photographs'))));
}

// Files that miss the place for them are not opened in place of the page.
for (const name of ['dragover', 'drop']) addEventListener(name, e => e.preventDefault());
refresh();
foot(program).then(findRound, e => { byId('server').textContent = 'The program is missing'; show('round', failed(e)); });

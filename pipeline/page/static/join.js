// A client in the browser: round, name, photographs, what leaves, and the sending of it.
import { el, byId, show, bytes, duration, Program, recall, keep, keptKeys, spend, save, chooser, picture, failed, foot } from './common.js';
import { fixed } from './fixed.js';
import { placed, add } from './photos.js';
import { at, fetched, mostFile, patient, rounds, since } from './server.js';
import { t, language, translate } from './words.js';

translate();

const few = 5;          // images behind a mean below which the page warns: a mean of one is that image's own features
const mostThumbs = 9;   // of a class
const mostLoose = 400;  // that are shown to be sorted
const mostSeconds = 86400; // to a private upload

const state = { round: null, rounds: null, graph: null, graphData: null, key: null, secret: null, name: '', photos: new Map(), listed: new Map(), loose: [], again: 0, before: [], upload: null, summary: null, receipt: null, busy: '', turn: Promise.resolve(), reply: 60 };
const program = new Program(() => { if (state.graph) alone(reopen); });

const active = (id, on) => { byId(id).inert = !on; byId(id).classList.toggle('off', !on); };

function refresh() {
  const ready = state.graph && !state.graph.refused, free = ready && !state.busy;
  active('step-name', free);
  active('step-photos', free && state.name);
  active('step-leaves', ready && state.busy !== 'send' && state.name && (state.photos.size > 0 || state.upload));
  active('step-send', ready && state.busy !== 'leaves' && (state.upload || state.receipt || state.gone));
}

// alone runs work on the key, the photographs or the upload, one after another.
function alone(work) {
  const done = state.turn.then(work);
  state.turn = done.catch(() => {});
  return done;
}

// working runs the work of a step that was pressed; till its end the other steps are inert.
async function working(step, work) {
  if (state.busy) return;
  state.busy = step;
  refresh();
  await alone(work).finally(() => { state.busy = ''; refresh(); if (state.due) enrolled(); });
}

// reopen starts the program again after it failed, with what it had open.
async function reopen() {
  try {
    if (state.rounds) await program.call('round', { age: state.age() }, { data: state.rounds });
    await openGraph(state.graphData, true);
    if (state.secret) await program.call('readKey', {}, { data: state.secret });
  } catch (e) { show('round', failed(e)); }
}

// --- the round ---

// askedAgain tells in a panel that the server has no answer for now.
const askedAgain = id => (why, time) => show(id, el('p', { class: 'note' }, t('askedAgain', { why, time: duration(time) })));

// findHere looks for a round beside the page, as fmp-edge page writes it.
async function findHere() {
  try {
    state.here = JSON.parse(new TextDecoder().decode(await fetched('round.json')));
    state.here.round = String(state.here.round); // a name, which may have more digits than numbers here
    return true;
  } catch (e) {
    if (e.transient) throw e;
    return false;
  }
}

async function openHere() {
  byId('server').textContent = t('roundSaved', { round: state.here.round });
  byId('server').classList.add('on');
  show('round', el('p', {}, t('fetchingGraph')));
  try {
    await openGraph(await patient(() => fetched('client.onnx', { most: mostFile }), askedAgain('round')));
  } catch (e) { show('round', failed(e)); }
}

// findRound looks for a server, then for a round beside the page. While one of the two has no answer it asks again: an upload that is made
// without the round is refused in it.
async function findRound() {
  const list = await patient(async () => {
    let fault;
    state.age = since();
    const list = await rounds().catch(e => { fault = e; });
    if (!list && !await findHere() && fault) throw fault;
    return list;
  }, askedAgain('round'));
  if (state.here) { await openHere(); return; }
  if (!list) {
    byId('server').textContent = t('noServer');
    show('round', el('p', {}, t('openGraph')),
      chooser(t('drop', { file: 'client.onnx' }), [{ id: 'graph-file', label: t('choose', { file: 'client.onnx' }), accept: '.onnx' }], takeGraph));
    return;
  }
  state.rounds = list;
  try {
    const d = state.round = await program.call('round', { age: state.age() }, { data: list });
    byId('server').textContent = t('roundOn', { round: d.round, host: location.host });
    byId('server').classList.add('on');
    const data = await patient(() => {
      const bar = el('progress', { max: 1, value: 0, 'aria-label': t('fetchingGraph') });
      show('round', el('p', {}, t('fetchingGraphOf', { bytes: bytes(d.graph_bytes) })), bar);
      return fetched(at(d.graph_path), { most: d.graph_bytes, progress: n => { bar.value = n / d.graph_bytes; } });
    }, askedAgain('round'));
    if (d.privacy) { state.limit = await recall('limit'); state.reply = await recall('reply') ?? state.reply; state.unsafe = !await navigator.storage?.persisted?.(); }
    await openGraph(data);
  } catch (e) { show('round', failed(e)); }
}

async function takeGraph(chosen) {
  const files = await chosen;
  if (files.length === 0) return;
  show('round', el('p', {}, t('takingApart', { file: files[0].file.name })));
  try {
    await openGraph(new Uint8Array(await files[0].file.arrayBuffer()));
  } catch (e) {
    await findRound();
    byId('round').prepend(failed(e));
  }
}

const numberOf = () => (state.round ?? state.here)?.round ?? '0';

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
  const where = g.shipped ? t('known', { name: g.shipped }) : g.refused ? t('notApproved') : t('approved');
  const closed = d?.state === 'closed';
  show('round',
    d && el('p', { class: 'big' }, d.title || t('round', { round: d.round })),
    state.here && el('p', { class: 'big' }, t('round', { round: state.here.round })), state.here && el('p', {}, t('savesFile')),
    d && el('p', {}, closed ? t('closed') : d.state === 'late' ? t('late') : t('openUntil', { time: new Date(d.deadline).toLocaleString(language) })),
    el('ul', { class: 'chips', 'aria-label': t('classList') }, g.classes.slice(0, 40).map(c => el('li', {}, c)), g.classes.length > 40 && el('li', {}, t('andMore', { n: g.classes.length - 40 }))),
    g.refused && el('div', { class: 'note bad', role: 'alert' },
      el('p', {}, t('refused', { why: g.refused })),
      el('p', {}, t('refusedSize', { numbers: g.numbers, bytes: bytes(g.bytes), features: g.features, pixels: g.pixels, can: g.can })),
      el('p', {}, t('refusedAdvice')),
      el('button', { type: 'button', class: 'quiet', id: 'approve', onclick: async () => { state.graph = await program.call('approve', {}); await judged(); } }, t('approve'))),
    el('details', {}, el('summary', {}, t('whatRuns')),
      el('p', {}, t('apart')),
      el('dl', {},
        el('dt', {}, t('extractor')), el('dd', {}, el('code', {}, g.extractor), `, ${where}`),
        el('dt', {}, t('computes')), el('dd', {}, t('computesWhat', { features: g.features, height: g.height, width: g.width, nodes: g.nodes, numbers: g.numbers })),
        el('dt', {}, t('graph')), el('dd', {}, el('code', {}, g.digest)))));
}

// --- the name and key ---

// filed keeps a key under a name of its own, with those before it that are not kept yet, and says whether all are: until then the kept key is
// not overwritten.
async function filed(name, data) {
  state.before = [...state.before.filter(b => b[1] !== data), [name, data]];
  const all = (await Promise.all(state.before.map(b => keep(...b)))).every(Boolean);
  if (all) state.before = [];
  return all;
}

async function showName() {
  const pem = await recall('key');
  let fault;
  if (pem && !state.key) {
    try {
      state.key = await program.call('readKey', {}, { data: pem });
      state.secret = pem;
      await filed(`key ${state.key.line}`, pem);
    } catch (e) { // the program may have ended: the key may be good
      fault = failed(e);
      state.before = [[`key ? ${new Date().toISOString()} ?`, pem]];
    }
  }
  if (state.key) {
    state.name = state.key.name;
    const line = el('code', { id: 'line' }, state.key.line);
    show('name',
      el('p', { class: 'big' }, state.key.name),
      state.keyUnkept ? el('p', { class: 'note bad' }, t('unkeptKey')) : el('p', {}, t('yourKey')),
      el('p', {}, t('yourLine')),
      el('div', { class: 'copy' }, line, el('button', { type: 'button', class: 'quiet', onclick: async e => {
        try { await navigator.clipboard.writeText(state.key.line); e.target.textContent = t('copied'); } catch { getSelection().selectAllChildren(line); }
      } }, t('copy'))),
      el('div', { class: 'buttons' },
        el('button', { type: 'button', class: 'quiet', onclick: () => save(`${state.key.name.replace(/[^\w.-]/g, '_')}.key`, state.secret) }, t('saveKey')),
        el('button', { type: 'button', class: 'quiet', id: 'other-key', onclick: () => nameForm() }, t('otherKey'))));
    state.known = undefined; // of this key
    state.gone = false;
    await recallUpload();
    if (state.round) enrolled();
  } else await nameForm(fault);
  refresh();
}

async function nameForm(why) {
  const input = el('input', { id: 'client', type: 'text', maxlength: 128, autocomplete: 'organization', spellcheck: 'false', placeholder: 'shop-17', required: true });
  const fault = el('div', {}, why);
  // use makes a key the page's. The key before it, read or not, stays under a name of its own: it alone withdraws what it signed.
  const use = got => alone(async () => {
    try {
      const { data, ...k } = await got();
      const held = await filed(`key ${k.line}`, data);
      state.keyUnkept = !(held && await keep('key', data));
      state.secret = data;
      state.key = k;
      state.gone = false;
      dropUpload();
      await showName();
    } catch (e) { fault.replaceChildren(failed(e)); }
  });
  const useFile = data => use(async () => ({ ...await program.call('readKey', {}, { data: data.slice() }), data }));
  const old = await keptKeys().catch(() => []);
  if (!state.key) old.push(...state.before.map(([name, data]) => [name.slice('key '.length), data]));
  show('name', el('form', { class: 'line', onsubmit: e => { e.preventDefault(); use(() => program.call('newKey', { name: input.value })); } },
    el('label', { for: 'client' }, t('nameLabel')), input,
    el('button', { type: 'submit' }, t('makeKey'))), fault,
  chooser(t('bringKey'), [{ id: 'key-file', label: t('useKey') }], async chosen => { const files = await chosen; if (files.length > 0) await useFile(new Uint8Array(await files[0].file.arrayBuffer())); }),
  old.length > 0 && el('div', { class: 'buttons', id: 'kept-keys' }, el('span', {}, t('keptKeys')),
    old.map(([line, data]) => {
      const [, half, ...name] = line.split(' ');
      return el('button', { type: 'button', class: 'quiet', title: line, onclick: () => useFile(data) }, `${name.join(' ')} (${half.slice(0, 10)}…)`);
    })));
}

// ask asks the server whether it knows the key, and for the receipt of the upload that is in: null where it says that none is.
async function ask(signal) {
  const { path, headers } = await program.call('ask', {});
  try {
    return { known: true, gone: false, receipt: await fetched(at(path), { headers, signal }) };
  } catch (e) {
    if (!e.status || e.transient) throw e;
    return { known: e.code === 'no-receipt', gone: e.status === 410, receipt: null };
  }
}

const receiptOf = data => JSON.parse(new TextDecoder().decode(data));

// verified returns a receipt where this server's key signed it, null otherwise. It may be of another upload than the shown one: that one is
// the server's, and can be withdrawn.
async function verified(receipt) {
  if (!receipt || !state.round) return null;
  try { return (await program.call('receipt', { digest: receiptOf(receipt).upload }, { data: receipt.slice() })).data; } catch { return null; }
}

// enrolled asks the server whether it knows the key, before anything is computed for it, and asks again until it does. A receipt that the
// server does not confirm is not shown. While an upload is made it waits: the program answers when the photographs are done, and the moment
// of a request would tell the server how long they took.
async function enrolled() {
  state.due = state.busy === 'leaves';
  if (state.due) return;
  const { key, receipt } = state;
  const { known, gone, receipt: got } = await ask().catch(() => ({})); // there is no answer for now
  if (key !== state.key) return;
  if (!known && !gone) {
    clearTimeout(state.asking);
    state.asking = setTimeout(enrolled, 2000);
  }
  if (known === undefined) return;
  if (known) {
    alone(async () => {
      if (key !== state.key || receipt !== state.receipt || state.gone) return;
      const confirmed = await verified(got);
      if (confirmed ? receipt && receiptOf(confirmed).upload === receiptOf(receipt).upload : !receipt) return;
      state.receipt = confirmed;
      if (confirmed) await keep(uploadName() + ' receipt', confirmed);
      showSend();
      refresh();
    });
  }
  const withdrawn = gone && !state.gone;
  if (known === state.known && !withdrawn) return;
  state.known = known;
  state.gone ||= gone; // a reply may be of before a withdrawal
  byId('computing')?.replaceWith(computeButton()); // what its owner is writing beside it stays
  if (withdrawn) showSend();
  refresh();
}

// --- photographs ---

// place puts photographs under their class's folder, or beside, to be sorted. Work that is pressed while a folder is walked waits for it:
// else the photographs would take the place of an upload that was just made.
const place = files => alone(async () => {
  for (const { path, file } of await files) {
    const to = placed(path, state.graph.classes);
    if (to) await put(to, file);
    else state.loose.push({ path, file, note: path.split('/').at(-2) });
  }
  dropUpload();
  await listed();
});

async function put(path, file) { if (!await add(state.photos, path, file)) state.again++; }

// listed asks the program which files are images, by its rules, and shows them. Files of which it makes no list are taken out again: those
// of the list before are left.
async function listed() {
  clearTimeout(state.later);
  state.later = 0;
  const none = { items: [], others: { n: 0 } }, list = async () => state.photos.size > 0 ? program.call('list', { paths: [...state.photos.keys()] }) : none;
  let got, fault;
  const again = state.again;
  state.again = 0;
  try {
    got = await list();
  } catch (e) {
    fault = new Error(t('notAdded', { why: e.message }));
    state.photos = state.listed;
    got = await list().catch(() => none); // the program may have ended
  }
  state.listed = new Map(state.photos);
  const { items, others } = got;
  const of = state.graph.classes.map(() => []);
  for (const i of items) of[i.label].push(i.path);
  state.counts = of.map(p => p.length);
  const total = items.reduce((n, i) => n + state.photos.get(i.path).size, 0);
  state.size = total;
  const rows = of.map((paths, c) => paths.length > 0 && el('li', { class: 'class' },
    el('div', {}, el('strong', {}, state.graph.classes[c]), el('span', {}, ' ' + t('photographs', { n: paths.length })),
      paths.length < few && el('span', { class: 'warn' }, ' ' + (paths.length === 1 ? t('oneAlone') : t('fewOf')))),
    el('div', { class: 'thumbs' }, paths.slice(0, mostThumbs).map(p => picture(state.photos.get(p), '')), paths.length > mostThumbs && el('span', { class: 'more' }, `+${(paths.length - mostThumbs).toLocaleString(language)}`)),
    el('button', { type: 'button', class: 'quiet', 'aria-label': t('takeOutOf', { class: state.graph.classes[c] }), onclick: () => alone(() => { for (const p of paths) state.photos.delete(p); state.listed = new Map(); dropUpload(); return listed(); }) }, t('takeOut'))));
  show('photos',
    chooser(t('dropFolders'), [
      { id: 'folder', label: t('chooseFolder'), webkitdirectory: true },
      { id: 'files', label: t('chooseLoose'), multiple: true, accept: 'image/*,.heic,.heif,.avif,.tif,.tiff,.bmp,.webp,.dcm,.dicom' }], place),
    fault && failed(fault),
    again > 0 && el('p', { class: 'note', id: 'again' }, t('thereBefore', { n: again })),
    items.length > 0 && el('p', { id: 'counted' }, t('counted', { photographs: t('photographs', { n: items.length }), bytes: bytes(total), classes: t('classes', { n: state.counts.filter(n => n > 0).length }) }), others.n > 0 && ` ${t('othersLeft', { n: others.n, names: others.names.join(', ') + (others.n > others.names.length ? ' …' : '') })}.`),
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
  const say = () => { heading.textContent = t('toSort', { photographs: t('photographs', { n: state.loose.length }), class: state.graph.classes[state.into] }); };
  say();
  const tiles = state.loose.slice(0, mostLoose).map(l => {
    const b = el('button', { type: 'button', class: 'tile', 'aria-label': l.note ? t('ofFolder', { file: l.file.name, folder: l.note }) : l.file.name, title: l.path, onclick: async () => {
      state.loose.splice(state.loose.indexOf(l), 1);
      const to = `${state.graph.classes[state.into]}/${l.file.name}`;
      (b.nextElementSibling ?? b.previousElementSibling)?.focus();
      b.remove();
      say();
      await alone(async () => {
        await put(to, l.file);
        dropUpload();
        clearTimeout(state.later);
        state.later = setTimeout(() => alone(() => state.later && listed()), 400);
      });
    } }, picture(l.file, ''));
    return b;
  });
  return el('div', { class: 'sorter' }, heading, el('fieldset', { class: 'into' }, el('legend', {}, t('clickClass')), radios), el('div', { class: 'tiles' }, tiles),
    state.loose.length > mostLoose && el('p', {}, t('moreLoose', { n: state.loose.length - mostLoose })),
    el('button', { type: 'button', class: 'quiet', onclick: () => alone(() => { state.loose = []; return listed(); }) }, t('leaveOut')));
}

// --- what leaves ---

const budget = () => state.round?.privacy;

// A private upload is one server's, as each adds noise of its own.
const uploadName = () => `upload ${state.graph.digest} ${numberOf()} ${(budget()?.noise ?? 'local') === 'local' ? '' : state.round.server_key + ' '}${state.name}`;

function dropUpload() { state.upload = state.summary = null; state.unkept = false; if (!state.gone) showSend(); }

// recallUpload shows the upload that was made before for this round and name: another would be refused where the first is in.
async function recallUpload() {
  const data = await recall(uploadName());
  if (data) {
    try {
      state.summary = await program.call('explain', {}, { data: data.slice() });
      state.upload = data;
    } catch { /* it was of another round */ }
  }
  state.receipt = await verified(await recall(uploadName() + ' receipt'));
  await listed();
}

// idle says why nothing is computed now: for an upload that nobody takes no budget is spent.
const idle = () => state.gone ? t('goneHere') : budget() && state.round.state === 'closed' ? t('closed') : state.round && !state.known && t('notEnrolled');

function computeButton() {
  const why = idle();
  if (why) return el('p', { class: 'note', id: 'computing' }, why);
  return el('div', { class: 'buttons', id: 'computing' }, el('button', { type: 'button', id: 'compute', onclick: () => working('leaves', compute) }, state.upload ? t('computeAnew') : t('compute')), el('span', { class: 'hint' }, t('nothingSent')));
}

// limits asks how much private rounds may spend in all, and says where it is counted.
function limits() {
  const b = budget();
  const input = el('input', { id: 'limit', type: 'number', min: 0, step: 'any', required: true, ...(state.limit && { value: state.limit }), oninput: () => { state.limit = input.value; } });
  const reply = el('input', { id: 'reply', type: 'number', min: 2, max: mostSeconds, step: 'any', required: true, value: state.reply, oninput: () => { state.reply = reply.value; } });
  return el('div', { class: 'note', id: 'private' },
    el('p', {}, t(b.unit === 'client' ? 'privateAll' : 'privateEach', { epsilon: b.epsilon, delta: b.delta }) + ' ',
      b.noise === 'local' ? t('noiseHere') : t('noiseThere')),
    el('div', { class: 'line' }, el('label', { for: 'limit' }, b.unit === 'client' ? t('limitYou') : t('limitEach')), input),
    el('div', { class: 'line' }, el('label', { for: 'reply' }, t('replyAfter')), reply),
    el('p', {}, t('replyWhy')),
    el('p', {}, t('ledger'),
      state.unsafe && ' ' + t('ledgerUnsafe')));
}

function showLeaves() {
  if (state.busy === 'leaves') return;
  if (state.upload) { showSummary(); return; }
  const ask = budget() && state.photos.size > 0 && limits();
  show('leaves', el('p', {}, state.photos.size > 0 ? t('willRun') : t('chooseFirst')), ask, state.photos.size > 0 && computeButton());
}

// made takes an upload that was just made. A private one is kept together with its line of the ledger, before it is shown or can be sent; of
// one that was made before of the same photographs the kept bytes are taken.
async function made({ data, ...summary }, place, ledger) {
  if (!budget()) state.unkept = !await keep(place, data.slice());
  else if (summary.spent.again) {
    const { path, sha256 } = summary.spent.again;
    data = await recall(path);
    summary = data && await program.call('explain', {}, { data: data.slice() });
    if (summary?.digest !== sha256) throw new Error(t('goneUpload'));
  } else {
    await program.call('stillOpen', {}); // the page may have been frozen meanwhile
    try {
      await spend(ledger, summary.spent.line, place, data.slice());
    } catch { throw new Error(t('spentMeanwhile')); }
  }
  state.upload = data;
  state.summary = summary;
}

// current throws where the server's round is another than the one that this page shows, or a private one ends within seconds of reply.
async function current(signal, reply) {
  const age = since(), list = await fetched(at('/v1/rounds'), { signal }), now = await program.call('round', { reply, age: age() }, { data: list });
  signal.throwIfAborted();
  if (['round', 'graph', 'server_key', 'privacy'].some(k => JSON.stringify(now[k]) !== JSON.stringify(state.round[k]))) {
    await program.call('round', { age: state.age() }, { data: state.rounds });
    throw new Error(t('roundChanged'));
  }
  state.rounds = list;
  state.age = age;
  state.round = now;
}

// asked asks whether the round would take an upload, and returns the program's parameters for a private one: the round may have changed or
// ended, and its upload have come or gone, since the page was opened. After signal it changes nothing more, and no request goes on, for which
// the browser would let the next one wait.
async function asked(place, signal) {
  const spends = Boolean(budget());
  if (spends) {
    if (!(Number(state.reply) >= 2 && Number(state.reply) <= mostSeconds)) throw new Error(t('badReply', { seconds: state.reply, most: mostSeconds }));
    if (!await keep('limit', state.limit) || !await keep('reply', state.reply)) throw new Error(t('spentMeanwhile'));
    // Firefox asks its user, and the promise stays open until there is an answer: the work does not wait for a remark.
    navigator.storage?.persist?.().then(kept => { state.unsafe = !kept; }, () => {});
  }
  let answer;
  try {
    await current(signal, spends ? Number(state.reply) : 0);
    answer = await ask(signal);
  } catch (e) {
    if (spends || !e.transient) throw e;
    return; // nothing is spent, and it is asked again before the upload is sent
  }
  const { known, gone, receipt } = answer, held = await verified(receipt);
  signal.throwIfAborted();
  state.gone ||= gone;
  state.known = known;
  if (known) state.receipt = held;
  if (!known && !gone) enrolled();
  if (idle()) throw new Error(idle());
  return spends && { ledger: await recall('ledger') ?? '', maxEpsilon: Number(state.limit), kept: place, reply: Number(state.reply), taken: Boolean(receipt) };
}

async function compute() {
  if (state.later) await listed(); // which would take the place of an error
  const start = performance.now(), skip = byId('skip')?.checked ?? false, place = uploadName();
  const files = [...state.photos].map(([path, file]) => ({ path, file }));
  const bar = el('progress', { max: 1, value: 0, 'aria-label': t('progress') }), text = el('p', { 'aria-live': 'off' }, t('reading'));
  if (budget()) { state.limit = byId('limit').value; state.reply = byId('reply').value; }
  const { upload, summary, unkept } = state;
  dropUpload();
  const stopped = t('stopped'), stop = new AbortController();
  let halt;
  const halted = new Promise((_, reject) => { halt = () => { const why = new Error(stopped); reject(why); stop.abort(why); program.stop(stopped); }; });
  halted.catch(() => {});
  show('leaves', text, bar, el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'quiet', id: 'stop', onclick: halt }, t('stop'))));
  const progress = (done, all) => {
    const rate = done / ((performance.now() - start) / 1000);
    bar.max = all; bar.value = done;
    text.textContent = t('rate', { done, photographs: t('photographs', { n: all }), rate: rate.toPrecision(2) }) + ' ' + (done < all ? t('timeLeft', { time: duration((all - done) / rate) }) : budget() ? t('thereAfter', { time: t('seconds', { n: Number(state.reply) }) }) : t('lastSums'));
  };
  try {
    const spending = state.round && await Promise.race([halted, asked(place, stop.signal)]);
    const call = () => program.call('compress', { paths: files.map(f => f.path), name: state.name, round: numberOf(), skip, ...spending }, { files, progress });
    const late = () => program.stop(t('tooLong', { seconds: state.reply }));
    await made(await Promise.race([halted, spending ? fixed(Number(state.reply), call, late) : call()]), place, spending?.ledger);
    state.seconds = (performance.now() - start) / 1000;
    showSummary();
  } catch (e) {
    Object.assign(state, { upload, summary, unkept }); // it is kept as it was
    const why = failed(e), skipping = budget() ? '' : el('label', { class: 'check' }, el('input', { type: 'checkbox', id: 'skip' }), ' ' + t('skipBad'));
    if (upload) {
      showSummary();
      byId('leaves').prepend(why, skipping);
    } else {
      show('leaves', why, budget() && limits(), skipping, computeButton());
      showSend();
    }
  }
}

// showRelease shows a private upload. It is made once: there is no button to make another.
async function showRelease() {
  const ledger = await recall('ledger') ?? '', s = state.summary;
  if (!s) return; // photographs came meanwhile
  const b = s.budget, local = b.noise === 'local';
  show('leaves',
    el('figure', {}, el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('allSums') }, heatmap(s)),
      el('figcaption', {}, t(local ? 'everySumNoise' : 'everySum', { numbers: t('numbers', { n: s.features }), bytes: bytes(s.bytes) }))),
    el('ul', { class: 'facts' },
      el('li', {}, t('takePart', { name: s.client, round: s.round })),
      el('li', {}, t('sumsOf', { sums: t('sums', { n: s.points.length }), numbers: t('numbers', { n: s.features }) })),
      el('li', {}, t(local ? 'noneOfAll' : 'noneOfTrusted'))),
    el('p', { id: 'promise' }, s.promise),
    s.spent && el('p', { id: 'spent' }, t('spentAll', { releases: t('releases', { n: s.spent.earlier }), epsilon: s.spent.epsilon.toPrecision(3), limit: state.limit })),
    state.unsafe && el('p', { class: 'note' }, t('ledger') + ' ' + t('ledgerUnsafe')),
    s.copies > 0 && el('p', { class: 'note' }, t('copies', { photographs: t('photographs', { n: s.copies }) })),
    s.zeros > 0 && el('p', { class: 'note' }, t('zeros', { photographs: t('photographs', { n: s.zeros }) })),
    s.left?.length > 0 && el('details', {}, el('summary', {}, t('leftOut', { n: s.left.length })), el('ul', {}, s.left.map(l => el('li', {}, l)))),
    el('p', { class: 'digest' }, 'SHA-256 ', el('code', { id: 'digest' }, s.digest), ', ' + t('madeOnce')),
    el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'quiet', id: 'save-ledger', onclick: () => save('spent.jsonl', ledger, 'application/jsonl') }, t('saveLedger'))));
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
      el('div', { class: 'stays' }, el('span', { class: 'figure' }, state.size ? bytes(state.size) : '–'), el('span', {}, t('stay', { photographs: t('photographs', { n: s.images }) }))),
      el('div', { class: 'area', role: 'img', 'aria-label': share ? t('areaOf', { share: (100 * share).toPrecision(2) }) : t('upload') }, dot),
      el('div', { class: 'goes' }, el('span', { class: 'figure', id: 'leaving-bytes' }, bytes(s.bytes)), el('span', {}, share ? t('leaveShare', { share: (100 * share).toPrecision(2) }) : t('leave')))),
    el('figure', {}, el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': t('allAverages') }, heat),
      el('figcaption', {}, t('everyAverage', { numbers: t('numbers', { n: s.features }) }))),
    el('ul', { class: 'facts' },
      el('li', {}, t('takePartWith', { name: s.client, photographs: t('photographs', { n: s.images }) })),
      el('li', {}, t('averagesOf', { averages: t('averages', { n: s.points.length }), numbers: t('numbers', { n: s.features }), precision: s.precision })),
      s.scatter > 0 && el('li', {}, t('scatter', { numbers: t('numbers', { n: s.scatter }) })),
      s.curve > 0 && el('li', {}, t('curve', { numbers: t('numbers', { n: s.curve }) })),
      s.singles?.length > 0 && el('li', { class: 'warn' }, t('singlesOf', { singles: t('singles', { n: s.singles.length }) })),
      el('li', {}, t('noneOf'))),
    el('p', {}, t('notPrivate')),
    state.unkept && el('p', { class: 'note bad', id: 'unkept' }, t('unkept')),
    alone.length > 0 && el('p', { class: 'note' }, t('fewBehind', { classes: alone.map(p => `${g.classes[p.class]} (${Math.round(p.images)})`).join(', ') })),
    s.copies > 0 && el('p', { class: 'note' }, t('copies', { photographs: t('photographs', { n: s.copies }) })),
    s.zeros > 0 && el('p', { class: 'note' }, t('zeros', { photographs: t('photographs', { n: s.zeros }) })),
    s.left?.length > 0 && el('details', {}, el('summary', {}, t('leftOut', { n: s.left.length })), el('ul', {}, s.left.map(l => el('li', {}, l)))),
    el('p', { class: 'digest' }, 'SHA-256 ', el('code', { id: 'digest' }, s.digest), ', ' + (state.seconds ? t('madeIn', { time: duration(state.seconds) }) : t('madeEarlier'))),
    state.photos.size > 0 && computeButton());
  showSend();
  refresh();
}

// heatmap draws the points of an upload, a line each.
function heatmap(s) {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map(h => parseInt(h, 16));
  const below = colour('--cool'), zero = colour('--soft'), above = colour('--warm');
  const rows = [...s.points, ...s.singles ?? []];
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
    return el('tr', {}, el('th', { scope: 'row' }, state.graph.classes[r.class]), el('td', {}, s.budget ? t('count', { n: r.images.toFixed(1) }) : i < s.points.length ? t('photographs', { n: Math.round(r.images) }) : t('oneSingle')), el('td', { class: 'strip' }, canvas));
  })));
}

// --- sending ---

const fileName = kind => `${state.name.replace(/[^\w.-]/g, '_')}${state.round || state.here ? '.' + numberOf() : ''}.${kind}`;
const saveButton = () => el('button', { type: 'button', id: 'save', class: state.round ? 'quiet' : '', onclick: () => save(fileName('upload'), state.upload, 'application/vnd.fmp.upload') }, t('saveUpload'));

// withdrawing asks once more, then withdraws the upload and shows the server's receipt.
const withdrawing = () => state.round?.withdrawal && el('button', { type: 'button', class: 'quiet', id: 'withdraw', onclick: e => {
  const sure = el('button', { type: 'button', id: 'withdraw-sure', onclick: () => working('send', withdraw) }, t('withdrawSure'));
  e.target.replaceWith(sure);
  sure.focus();
} }, t('withdraw'));

const stopButton = (stop, ...more) => el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'quiet', id: 'stop', onclick: () => stop.abort() }, t('stop')), more);

async function withdraw() {
  if (!state.receipt) return;
  const stop = new AbortController();
  const say = el('p', {});
  show('send', say, el('progress', { 'aria-label': t('progress') }), stopButton(stop));
  try {
    const got = await patient(async () => {
      await current(stop.signal);
      const { path, headers } = await program.call('withdraw', {});
      return fetched(at(path), { method: 'DELETE', headers, signal: stop.signal });
    }, (why, time) => { say.textContent = t('askedAgain', { why, time: duration(time) }); }, stop.signal);
    const { text, data } = await program.call('withdrawn', {}, { data: got });
    await keep(uploadName(), undefined);
    await keep(uploadName() + ' receipt', undefined);
    state.gone = true;
    state.receipt = null;
    dropUpload();
    showLeaves();
    show('send', el('div', { class: 'receipt', id: 'withdrawn' }, el('p', { class: 'big' }, t('withdrawn')), el('p', {}, t('withdrawnHow')), el('details', {}, el('summary', {}, t('cannotUndo')), el('pre', { tabindex: '0', lang: 'en' }, text)),
      el('div', { class: 'buttons' }, el('button', { type: 'button', class: 'quiet', onclick: () => save(fileName('withdrawal.json'), data, 'application/json') }, t('saveReceipt')))));
  } catch (e) { showSend(failed(stop.signal.aborted ? new Error(t('stoppedWithdrawing')) : e)); }
}

function showSend(fault) {
  if (state.gone) { show('send', el('p', { class: 'note' }, t('goneHere'))); return; }
  const held = state.receipt && receiptOf(state.receipt).upload;
  if (held && held === state.summary?.digest) { showReceipt(fault); return; }
  const theirs = held && [el('p', { class: 'note' }, t('hasThis'), ' ', el('code', { id: 'held' }, held)), el('div', { class: 'buttons' }, saveReceipt(), withdrawing())];
  if (!state.upload) { show('send', fault, theirs); return; }
  const closed = state.round?.state === 'closed';
  show('send', fault, theirs,
    state.round ? el('p', {}, [t('goesTo', { host: location.host }), state.round.replace ? t('replaceable') : t('notReplaceable'), state.round.withdrawal ? t('withdrawable') : t('notWithdrawable')].join(' '))
      : el('p', {}, t('bringIt')),
    el('div', { class: 'buttons' }, state.round && !closed && el('button', { type: 'button', id: 'send-upload', onclick: () => working('send', send) }, t('send', { bytes: bytes(state.upload.length) })), saveButton()));
}

async function send() {
  const { upload } = state, place = uploadName(), stop = new AbortController(), say = el('p', {}, t('sending'));
  if (!upload) return; // photographs came first
  show('send', say, stopButton(stop, saveButton()));
  try {
    const { data } = await patient(async () => {
      await current(stop.signal);
      const { path, headers, digest } = await program.call('sign', {}, { data: upload.slice() });
      const got = await fetched(at(path), { method: 'PUT', headers, body: upload, signal: stop.signal });
      return program.call('receipt', { digest }, { data: got });
    }, (why, time) => { say.textContent = t('again', { why, time: duration(time) }); }, stop.signal);
    state.receipt = data;
    await keep(place + ' receipt', data);
    showReceipt();
  } catch (e) {
    showSend(failed(stop.signal.aborted ? new Error(t('stoppedSending')) : e.status === 403 ? new Error(`${e.message}. ${t('addLine')}`) : e));
  }
}

const saveReceipt = () => el('button', { type: 'button', id: 'save-receipt', class: 'quiet', onclick: () => save(fileName('receipt.json'), state.receipt, 'application/json') }, t('saveReceipt'));

function showReceipt(fault) {
  const r = receiptOf(state.receipt);
  show('send', fault, el('div', { class: 'receipt' },
    el('p', { class: 'big good' }, el('span', { class: 'tick', 'aria-hidden': 'true' }, '✓'), ' ' + t('has')),
    el('p', {}, t('receiptSigned')),
    el('dl', {}, el('dt', {}, t('since')), el('dd', {}, new Date(r.time).toLocaleString(language)), el('dt', {}, t('upload')), el('dd', {}, el('code', {}, r.upload)), el('dt', {}, t('serverKey')), el('dd', {}, el('code', {}, r.server))),
    el('div', { class: 'buttons' }, saveReceipt(), saveButton(), withdrawing(),
      el('a', { href: 'predict.html' }, t('classifyLink')))));
}

// Files that miss the place for them are not opened in place of the page.
for (const name of ['dragover', 'drop']) addEventListener(name, e => e.preventDefault());
// Work that this browser does not keep is not left without a question: to another page, or for another language.
addEventListener('beforeunload', e => { if (state.busy || state.unkept || state.keyUnkept || !state.upload && (state.photos.size > 0 || state.loose.length > 0)) e.preventDefault(); });
// Another page or program may have sent or withdrawn since its owner was here.
for (const name of ['focus', 'visibilitychange']) addEventListener(name, () => { if (state.key && state.round && !document.hidden) enrolled(); });
refresh();
foot(program).then(findRound, e => { byId('server').textContent = t('noProgram'); show('round', failed(e)); });

package page

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx/must"
)

// node runs a script of Node's and returns its output.
func node(t *testing.T, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("node")
	must.Have(t, err)
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// wants compares the output of a script with the wanted one.
func wants(t *testing.T, name, got, want string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: want - and got +\n%s", name, d)
	}
}

// script runs a page's module, with more behind it.
func script(t *testing.T, module, more string) string {
	t.Helper()
	return node(t, "--input-type=module", "-e", string(must.Get(static.ReadFile("static/"+module))(t))+more)
}

// stubs stand in for a browser and for the modules of a page that need one. A page's places for
// files are in takes, its calls of the program in calls and its errors in faults. The words that it
// says are in said, their values in values, and those of each panel in panels. Its listeners are in
// presses, and its kept values in store. answers are the program's, or make them; full storage
// keeps nothing.
const stubs = `
Object.assign(globalThis, { takes: {}, calls: [], said: [], values: {}, panels: {}, faults: [],
  presses: {}, full: false, list: undefined, here: '{"round": 7}' });
globalThis.any = new Proxy(() => {}, {
  get: (_, k) => typeof k === 'symbol' ? undefined : any, apply: () => any, set: () => true });
globalThis.document = new Proxy({}, { get: (_, k) => k === 'baseURI' ? 'http://here/join/' : any });
globalThis.location = { host: '' }, globalThis.navigator ??= {};
globalThis.addEventListener = (name, act) => { presses[name] = act; };
const bytes = of => new TextEncoder().encode(of), text = of => new TextDecoder().decode(of);
globalThis.store = new Map([['key', bytes('key')]]);
const answers = { classifier: { classes: ['cat', 'dog'] },
  open: { classes: ['cat', 'dog'] }, readKey: { name: 'me', line: 'ed25519 old me' },
  list: { items: [], others: { n: 0 } } };
const elements = {};
const common = {
  el: (tag, props = {}) => {
    const press = props.onclick ?? props.onsubmit, name = props.id ?? (props.class === 'tile' ? 'tile' : tag);
    if (press) presses[name] = press;
    return any;
  },
  byId: id => elements[id] ??= new Proxy({}, { get: (o, k) => k in o ? o[k] : any }),
  show: (id, ...children) => {
    panels[id] = children.length > 0 ? said.slice(common.mark) : [];
    common.mark = said.length;
  },
  mark: 0, fill: () => {}, failed: e => { faults.push(e.message); return any; }, bytes: () => '',
  keep: async (name, value) => { if (!full) store.set(name, value); return !full; },
  recall: async name => store.get(name),
  keptKeys: async () => [...store].filter(([k]) => k.startsWith('key ')).map(([k, v]) => [k.slice(4), v]),
  spend: async (ledger, line, name, data) => { store.set('ledger', ledger + line); store.set(name, data); },
  foot: async () => {},
  chooser: (_, inputs, take) => { for (const i of inputs) takes[i.id] = take; return any; },
  Program: class {
    stop() {}
    async call(method, params, { files, data } = {}) {
      calls.push({ method, ...params, files });
      const a = answers[method];
      return typeof a === 'function' ? a(params, data) : a ?? {};
    }
  },
};
globalThis.common = new Proxy(common, { get: (o, k) => o[k] ?? (() => any) });
globalThis.t = (key, of) => { said.push(of?.n === undefined ? key : key + ' ' + of.n); values[key] = of; return key; };
const refused = (status, title, code = title) => new Response(JSON.stringify({ title, code }), { status });
globalThis.fetch = async (url, { signal } = {}) => {
  await globalThis.slow?.(signal);
  if (!/rounds$/.test(url)) return new Response(here);
  return list === undefined ? refused(404, 'no server') : new Response(list);
};
const file = (path, text) => ({ path, file: new File([text], path.split('/').at(-1)) });
const until = async done => { for (let i = 0; i < 3000 && !done(); i++) await new Promise(ok => setTimeout(ok, 1)); };
const rest = () => new Promise(ok => setTimeout(ok, 20));
`

// served stubs a server with a round. Its answers to uploads are in served, those to questions for
// a receipt in asked; the uploads that came are in requests. Uploads are their own digests.
const served = `
list = '{"rounds": []}';
globalThis.document = { baseURI: 'http://here/join/' }, globalThis.getComputedStyle = () => any;
globalThis.round = { round: '7', graph: 'g', server_key: 'k', state: 'open', graph_path: '/g', withdrawal: true };
globalThis.requests = [], globalThis.served = [200], globalThis.asked = ['no-receipt'];
const files = globalThis.fetch;
globalThis.fetch = async (url, { method = 'GET', body, signal } = {}) => {
  if (method === 'DELETE') return globalThis.deleted?.(signal) ?? new Response('gone');
  if (method === 'GET' && !/ask$/.test(url)) return files(url, { signal });
  if (method === 'GET') await globalThis.slowAsk?.(signal);
  const next = method === 'PUT' ? served : asked, answer = next.length > 1 ? next.shift() : next[0];
  if (method === 'PUT') requests.push(method + ' ' + text(body));
  if (method === 'PUT' && answer === 200) asked[0] = 200, globalThis.had = text(body);
  if (answer === 200) return new Response(receipt(globalThis.theirs ?? globalThis.had));
  return refused(answer === 'withdrawn' ? 410 : Number(answer) || 404, 'refused', answer);
};
let made = 0;
const receipt = upload => bytes(JSON.stringify({ upload }));
const told = data => ({ digest: text(data), points: [], images: 1 });
Object.assign(answers, { round: () => round, open: { digest: 'g', classes: ['cat', 'dog'] }, ask: { path: '/ask' },
  compress: () => { const data = bytes('upload ' + ++made); return { ...told(data), data }; },
  explain: (_, data) => told(data), sign: (_, data) => ({ path: '/put', digest: told(data).digest }),
  receipt: ({ digest }, data) => {
    if (JSON.parse(told(data).digest).upload !== digest) throw new Error('not of this');
    return { data };
  },
  withdraw: { path: '/put' }, withdrawn: { text: '', data: bytes('gone') } });
`

// stubbed runs a page's module among stubs, with more before it and behind it.
func stubbed(t *testing.T, module, before, more string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{module, "photos.js", "fixed.js", "server.js"} {
		data := must.Get(static.ReadFile("static/" + name))(t)
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for name, code := range map[string]string{
		"package.json": `{"type": "module"}`,
		"words.js":     "export const t = globalThis.t, language = 'en', translate = () => {};",
		"common.js": "export const { el, byId, show, fill, bytes, duration, Program, recall, keep, keptKeys, spend, save, " +
			"chooser, picture, failed, foot } = globalThis.common;",
		"main.js": stubs + before + "await import('./" + module + "');\n" + more + "\nprocess.exit();\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600))
	}
	return node(t, filepath.Join(dir, "main.js"))
}

// TestPlaced: a file's class is that of its folder, with one folder above at most, as in fmp-edge.
func TestPlaced(t *testing.T) {
	for path, want := range map[string]string{
		"cat/000.png":              "cat/000.png",
		"train/cat/000.png":        "cat/000.png",
		"train/cat/dog/000.png":    "cat/dog/000.png",
		"cat/cat/000.png":          "cat/cat/000.png",
		"cat/dog/000.png":          "to sort",
		"shop-1/train/cat/000.png": "to sort",
		"shop-1/000.png":           "to sort",
		"cat":                      "to sort",
		"train/cat":                "to sort",
		"shop-1/.cache/cat/9.png":  "shop-1/.cache/cat/9.png",
		"train/cat/.000.png":       "train/cat/.000.png",
	} {
		wants(t, path, script(t, "photos.js", `
process.stdout.write(placed('`+path+`', ['cat', 'dog']) ?? 'to sort');`), want)
	}
}

// TestAdd: files of one path are all kept, under paths of their own, and a file that is added again
// is not.
func TestAdd(t *testing.T) {
	got := script(t, "photos.js", `
const photos = new Map();
for (const [path, text] of [['cat.v1/0.png', 'a'], ['cat.v1/0.png', 'b'], ['cat.v1/0.png', 'c'],
  ['cat.v1/0.png', 'long'], ['cat.v1/0.png', 'b'], ['cat.v1/0 (2).png', 'd'], ['dog/raw', 'a'], ['dog/raw', 'b'],
  ['dog/.png', 'a'], ['dog/.png', 'b'], ['dog/.png', 'a']]) {
  if (!await add(photos, path, new Blob([text]))) console.log('again', path, text);
}
const gone = { size: 1, arrayBuffer: async () => { throw new Error('gone'); } };
await add(photos, 'dog/raw', gone);
for (const [path, file] of photos) console.log(path, file === gone ? 'gone' : await file.text());
`)
	wants(t, "", got, `again cat.v1/0.png b
again dog/.png a
cat.v1/0.png a
cat.v1/0 (2).png b
cat.v1/0 (3).png c
cat.v1/0 (4).png long
cat.v1/0 (2) (2).png d
dog/raw a
dog/raw (2) b
dog/.png a
dog/.png (2) b
dog/raw (3) gone
`)
}

// TestScored: every chosen photograph is scored once, under a path of its own; a folder that is no
// class is the program's to refuse, as in fmp-edge. One in folders of two classes is named, copies are
// counted, and the signed report is shown whole.
func TestScored(t *testing.T) {
	got := stubbed(t, "predict.js", "", `
await until(() => takes['score-folder']);
await takes['score-folder']([file('a/cat/0.png', 'one'), file('b/cat/0.png', 'two'),
  file('shop/train/dog/1.png', 'three'),
  file('shop/notes.txt', 'four'), file('cat/dog/2.png', 'five')]);
const { paths, files } = calls.find(c => c.method === 'evaluate');
for (const [i, p] of paths.entries()) console.log(p, files[i].path === p, await files[i].file.text());
`)
	wants(t, "", got, "cat/0.png true one\ncat/0 (2).png true two\ntrain/dog/1.png true three\n"+
		"notes.txt true four\n")
	// Files that are left out are named beside the counts.
	for others, want := range map[string]string{"{ n: 0 }, copies: 0": "true cat/dog/0.png false true\n",
		"{ n: 2, names: ['a (loose)', 'b (loose)'] }, copies: 2": "true cat/dog/0.png, a (loose), b (loose) true true\n",
		"{ n: 3, names: ['a (loose)'] }":                         "true cat/dog/0.png, a (loose) … false true\n"} {
		wants(t, others, stubbed(t, "predict.js", "answers.evaluate = { report: { groups: [] }, others: "+others+" };", `
await until(() => takes['score-folder']);
await takes['score-folder']([file('a/cat/0.png', 'one'), file('cat/dog/0.png', 'two')]);
const says = what => panels.score.some(s => what.test(s));
console.log(says(/othersLeft/), values.othersLeft.names, says(/^copies/), says(/scoreFile/));
`), want)
	}
	// A host that answers every path with a page is no server.
	for list, want := range map[string]string{"<!doctype html>": "false true\n", `{"rounds": []}`: "true true\n"} {
		got := stubbed(t, "predict.js", "list = '"+list+"';", `
await until(() => takes['score-folder']);
await takes['score-folder']([file('a/cat/0.png', 'one')]);
console.log(calls.some(c => c.method === 'round'), calls.some(c => c.method === 'evaluate'));
`)
		wants(t, list, got, want)
	}
}

// TestTakesPart: the page takes part with the photographs of fmp-edge's folder, each once, and says
// which were there before; others are to be sorted.
func TestTakesPart(t *testing.T) {
	got := stubbed(t, "join.js", "", `
await until(() => takes.folder);
const drop = [['shop/cat/0.png', 'one'], ['shop/.cache/cat/9.png', 'two'], ['shop/cat/.1.png', 'three'],
  ['shop/test/cat/0.png', 'four'], ['shop/dog/notes.txt', 'five']];
for (const text of ['one', 'six']) {
  drop[0][1] = text;
  said.length = 0;
  await takes.folder(drop.map(([path, text]) => file(path, text)));
  console.log(...calls.filter(c => c.method === 'list').at(-1).paths);
  console.log(...said.filter(s => /^(thereBefore|ofFolder|toSort)/.test(s)));
}
`)
	wants(t, "", got, `cat/0.png shop/.cache/cat/9.png shop/cat/.1.png dog/notes.txt
toSort ofFolder
cat/0.png shop/.cache/cat/9.png shop/cat/.1.png dog/notes.txt cat/0 (2).png
thereBefore 3 toSort ofFolder ofFolder
`)
	// Files of which no list is made are taken out again, and those before them stay.
	got = stubbed(t, "join.js", `
answers.list = ({ paths }) => {
  if (paths.length > 2 || !paths.some(p => /png$/.test(p))) throw new Error('not ' + paths.length);
  return { items: paths.filter(p => /png$/.test(p)).map(path => ({ path, label: 0 })), others: { n: 0 } };
};
`, `
await until(() => takes.folder);
const drop = async (...names) => {
  faults.length = 0;
  await takes.folder(names.map(n => file('cat/' + n, n)));
  console.log(calls.filter(c => c.method === 'list').at(-1)?.paths.join(), values.notAdded?.why, faults.join(),
    panels.leaves.join());
};
await drop('notes.txt');
await drop('a.png', 'notes.txt');
await drop('b.png', 'c.png');
await presses.button();
console.log(faults.at(-1), panels.leaves.join());
await drop('b.png');
`)
	wants(t, "a list that fails", got, `cat/notes.txt not 1 notAdded chooseFirst
cat/a.png,cat/notes.txt not 1  willRun,compute,nothingSent
cat/a.png,cat/notes.txt not 4 notAdded willRun,compute,nothingSent
notAdded chooseFirst
cat/b.png not 1  willRun,compute,nothingSent
`)
}

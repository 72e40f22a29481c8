package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// chosen opens the page with a photograph, in a round that knows the key, and lets it make uploads.
const chosen = `
const compute = async () => { delete presses.compute; await presses.again(); };
const photograph = name => takes.folder([file('shop/cat/' + name, name)]);
await until(() => takes.folder && calls.some(c => c.method === 'ask'));
await rest();
await photograph('a.png');
presses.again = presses.compute;
const inert = () => ['name', 'photos', 'leaves', 'send'].map(s => elements['step-' + s].inert ? '-' : s).join(' ');
const sending = () => (panels.send.includes('hasThis') ? 'other ' : '') + (panels.send.includes('has') ? 'receipt' :
  panels.send.includes('send') ? 'send' : panels.send.join(' '));
`

// TestShownIsSent: the upload that is shown is of the photographs that are shown, the one that is
// sent is the one that was shown when its owner sent it, and a receipt is of it and of the server
// as it is.
func TestShownIsSent(t *testing.T) {
	const kept = "store.set('upload g 7 me', bytes('upload 0')); " +
		"store.set('upload g 7 me receipt', receipt('upload 0'));"
	for name, c := range map[string]struct{ before, more, want string }{
		"photographs while it computes": {more: `
let done;
answers.compress = () => new Promise(ok => { done = ok; });
const computed = compute();
const late = photograph('b.png');
await until(() => done);
console.log(inert(), calls.filter(c => c.method === 'list').length);
done({ digest: 'one', points: [], data: bytes('one') });
await computed;
await late;
console.log(calls.find(c => c.method === 'compress').paths.join(), sending(), '.', panels.leaves.join(' '), inert());
`, want: "- - leaves - 1\ncat/a.png  . willRun compute nothingSent name photos leaves -\n"},
		"a folder that is walked while it computes": {more: `
let walked;
const drop = takes.folder(new Promise(ok => { walked = ok; })), computed = compute();
await rest();
walked([file('shop/cat/b.png', 'b')]);
await drop;
await computed;
console.log(calls.filter(c => c.method === 'compress').map(c => c.paths.join(' ')).join(), sending());
`, want: "cat/a.png cat/b.png send\n"},
		"an error just after sorting": {more: `
await takes.files([file('c.png', 'c')]);
answers.compress = () => new Promise((_, fail) => setTimeout(fail, 600, new Error('unread')));
presses.tile();
await compute();
await rest();
console.log(panels.leaves.includes('skipBad'));
`, want: "true\n"},
		"another name while it computes": {more: `
answers.newKey = { name: 'other', line: 'ed25519 new other', data: bytes('new') };
let done;
answers.compress = () => new Promise(ok => { done = ok; });
presses['other-key']();
await rest();
const computed = compute();
presses.form({ preventDefault() {} });
await until(() => done);
done({ digest: 'one', points: [], data: bytes('one') });
await computed;
await rest();
const uploads = [...store.keys()].filter(k => k.startsWith('upload'));
console.log(uploads.join(), calls.find(c => c.method === 'compress').name);
`, want: "upload g 7 me me\n"},
		"photographs while it is sent": {before: "served.splice(0, 1, 503, 200);", more: `
await compute();
const sent = presses['send-upload']();
await until(() => requests.length === 1);
const late = photograph('b.png');
await rest();
console.log(inert(), requests.length);
await sent;
await late;
console.log(requests.join(), sending(), JSON.parse(text(store.get('upload g 7 me receipt'))).upload);
await compute();
console.log(sending());
`, want: "- - - send 1\nPUT upload 1,PUT upload 1 other hasThis saveReceipt withdraw upload 1\nother send\n"},
		"a receipt of another upload": {
			before: strings.Replace(kept, "receipt('upload 0", "receipt('upload 9", 1),
			more:   `await compute(); console.log(sending());`, want: "send\n"},
		"a server that has it": {before: kept + "asked[0] = 200; globalThis.theirs = 'upload 0';",
			more: "", want: "shown receipt\n"},
		"a server begun anew":             {before: kept, more: "", want: "shown send\n"},
		"a server that cannot be reached": {before: kept + "asked[0] = '500';", more: "", want: "shown receipt\n"},
		"a server that has another's": {
			before: kept + "asked[0] = 200; globalThis.theirs = 'upload 8';", want: "shown other send\n"},
		"a server that has one, and this browser none": {before: "asked[0] = 200; globalThis.theirs = 'upload 8';",
			more: `await rest(); console.log(inert()); await compute(); console.log(sending());`,
			want: "name photos leaves send\nother send\n"},
		"a failure after a receipt": {before: "served.push(200);", more: `
await compute();
await presses['send-upload']();
answers.compress = () => { throw new Error('unread'); };
await compute();
console.log(sending(), panels.leaves.includes('computeAnew'), faults.join());
`, want: "receipt true unread\n"},
		"a server that has it, unknown yet": {before: kept[:strings.Index(kept, ";")+1] +
			"asked[0] = 200; globalThis.theirs = 'upload 0';", want: "shown receipt\n"},
		"after a withdrawal": {before: "served.push(200);", more: `
await compute();
await presses['send-upload']();
await presses.withdraw({ target: { replaceWith() {} } });
await presses['withdraw-sure']();
const after = panels.leaves.join(' ');
await photograph('b.png');
console.log(after, '.', panels.send.join(' '), '.', panels.leaves.join(' '), inert());
`, want: "willRun goneHere . withdrawn withdrawnHow cannotUndo saveReceipt . willRun goneHere name photos leaves send\n"},
		"a withdrawal that is not answered": {before: "served.push(200);", more: `
await compute();
await presses['send-upload']();
globalThis.deleted = signal => new Promise((_, fail) => signal.addEventListener('abort', () => fail(signal.reason)));
await presses.withdraw({ target: { replaceWith() {} } });
const over = presses['withdraw-sure']();
await rest();
presses.stop();
await over;
console.log(sending(), inert(), faults.join());
`, want: "receipt name photos leaves send stoppedWithdrawing\n"},
		"another round meanwhile": {before: "served.push(200);", more: `
const withdraw = async () => {
  await presses.withdraw({ target: { replaceWith() {} } });
  await presses['withdraw-sure']();
};
await compute();
const was = answers.round;
answers.round = () => ({ ...round, round: '8' });
await presses['send-upload']();
console.log(requests.length, sending());
answers.round = was;
await presses['send-upload']();
answers.round = () => ({ ...round, server_key: 'l' });
await withdraw();
await compute();
console.log(sending(), calls.filter(c => /withdrawn|compress/.test(c.method)).length, faults.join());
`, want: "0 send\nreceipt 1 roundChanged,roundChanged,roundChanged\n"},
		"no answer while it computes": {more: `
const next = globalThis.fetch;
globalThis.fetch = async (url, of) => /rounds$/.test(url) ? refused(503, 'busy') : next(url, of);
await compute();
console.log(sending(), faults.length);
`, want: "send 0\n"},
		"withdrawn in another page": {more: `
await compute();
asked[0] = 'withdrawn';
presses.focus();
await rest();
console.log([...new Set(panels.send)].join(), inert());
await compute();
console.log(calls.filter(c => c.method === 'compress').length, faults.join());
`, want: "goneHere name photos leaves send\n1 goneHere\n"},
		"a reply of before a withdrawal": {more: `
await compute();
let late;
globalThis.slowAsk = () => new Promise(ok => { late = ok; });
presses.focus();
await until(() => late);
globalThis.slowAsk = undefined;
asked[0] = 'withdrawn';
presses.focus();
await rest();
asked[0] = 'no-receipt';
late();
await rest();
await photograph('b.png');
console.log(panels.leaves.join(' '));
`, want: "willRun goneHere\n"},
		"a page that is left": {more: `
const leave = () => { let asks = false; presses.beforeunload({ preventDefault() { asks = true; } }); return asks; };
const sorted = leave();
let done;
answers.compress = () => new Promise(ok => { done = ok; });
const computed = compute();
await until(() => done);
const busy = leave();
done({ digest: 'one', points: [], data: bytes('one') });
await computed;
const then = leave(), sent = presses['send-upload'](), halfway = leave();
await sent;
console.log(sorted, busy, then, halfway, leave());
`, want: "true true false true false\n"},
		"full storage": {before: "full = true;", more: `
await compute();
console.log(sending(), panels.leaves.includes('unkept'), store.size);
`, want: "send true 1\n"},
	} {
		more := chosen + c.more
		if strings.HasPrefix(c.want, "shown ") { // as it is opened, without photographs
			more = strings.Replace(chosen, "await photograph('a.png');", "", 1) +
				"await rest(); console.log('shown', sending());"
		}
		wants(t, name, stubbed(t, "join.js", served+c.before, more), c.want)
	}
}

// TestSpendsNothingInVain: a page states what a private round spends in full, and makes no upload
// that the round would not take. Bad photographs are left out there, and it offers no choice.
func TestSpendsNothingInVain(t *testing.T) {
	const private = `
round.privacy = { epsilon: .0123456, delta: 1e-7, unit: 'example', noise: 'trusted' };
elements.limit = { value: '9' }, elements.reply = { value: '2' };
answers.compress = p => { throw new Error('computed, taken ' + p.taken + ', reply ' + p.reply); };
`
	later := func(change string) string {
		return "answers.round = () => ({ ...round, " + change + " });"
	}
	// while the page is answered a clock goes on by seconds
	clocks := func(clock string, seconds int) string {
		return fmt.Sprintf(`let ticks = 0, date = 0;
performance.now = () => ticks, Date.now = () => date;
globalThis.slow = async () => { %s += %d; };
answers.round = p => { if (p.age > 20) throw new Error('too old'); return round; };`, clock, 1000*seconds)
	}
	for name, c := range map[string]struct{ then, want string }{
		"open":               {"", "computed, taken false, reply 2"},
		"at the server":      {"asked[0] = 200; globalThis.theirs = 'upload 8';", "computed, taken true, reply 2"},
		"closed meanwhile":   {later("state: 'closed'"), "closed"},
		"withdrawn":          {"asked[0] = 'withdrawn';", "goneHere"},
		"taken off the list": {"asked[0] = 'no-key';", "notEnrolled"},
		"another round":      {later("round: '8'"), "roundChanged"},
		"another budget":     {later("privacy: { ...round.privacy, epsilon: 8 }"), "roundChanged"},
		"another server":     {later("server_key: 'l'"), "roundChanged"},
		"no server":          {"list = undefined;", "no server"},
		"full storage":       {"full = true;", "spentMeanwhile"},
		"a bad time":         {"elements.reply.value = '1';", "badReply"},
		"an open question":   {"navigator.storage = { persist: () => new Promise(() => {}) };", "computed, taken false, reply 2"},
		"no answer": {"navigator.storage = { persist: async () => { throw new Error('no'); } };",
			"computed, taken false, reply 2"},
		"slow on the way":        {clocks("ticks", 25), "too old"},
		"slow by the wall clock": {clocks("date", 25), "too old"},
		"a clock that was set":   {clocks("date", -3600), "computed, taken false, reply 2"},
		"over before": {"answers.round = p => { if (p.reply === 2) throw new Error('too late'); return round; };",
			"too late"},
	} {
		got := stubbed(t, "join.js", served+private, chosen+c.then+`
await compute();
await rest();
const { epsilon, delta } = values.privateEach;
console.log(faults.join(), epsilon, delta, typeof epsilon, typeof delta,
  calls.filter(c => c.method === 'ask').length > 2, panels.leaves.includes('skipBad'));
`)
		// a key that is unknown now is asked for again
		wants(t, name, got, fmt.Sprintln(c.want, "0.0123456 1e-7 number number", c.want == "notEnrolled", false))
	}
	// What was stopped while the server was asked changes nothing, and no request goes on.
	for _, slow := range []string{"slow", "slowAsk"} {
		got := stubbed(t, "join.js", served+private, chosen+"let signal; globalThis."+slow+` =
  of => new Promise((_, fail) => { signal = of; of?.addEventListener('abort', () => fail(of.reason)); });
asked[0] = 'withdrawn';
const computed = compute();
await until(() => signal);
presses.stop();
await computed;
await rest();
await photograph('b.png');
console.log(faults.join(), signal.aborted, panels.leaves.includes('notEnrolled'), panels.send.join(' '));
`)
		wants(t, slow, got, "stopped true false \n")
	}
	// In a round that was closed before no upload is offered.
	got := stubbed(t, "join.js", served+private+"round.state = 'closed';",
		chosen+"console.log(presses.again, panels.leaves.includes('closed'));")
	wants(t, "a closed round", got, "undefined true\n")
}

// TestFrozen: a page that stood still until its round was over keeps and spends nothing. An upload
// that was made before costs nothing, and is shown.
func TestFrozen(t *testing.T) {
	for name, c := range map[string]struct{ then, want string }{
		"in time": {"", " spent true true"},
		"over":    {"answers.stillOpen = () => { throw new Error('over'); };", "over undefined false false"},
		"over, of before": {"answers.stillOpen = () => { throw new Error('over'); };" +
			"store.set('before', bytes('upload 1')); spent = { again: { path: 'before', sha256: 'upload 1' } };",
			" undefined false true"},
	} {
		got := stubbed(t, "join.js", served+`
round.privacy = { epsilon: 1, delta: 1e-5, noise: 'local' };
elements.limit = { value: '9' }, elements.reply = { value: '2' };
let spent = { line: 'spent', epsilon: 1, earlier: 0 };
answers.compress = () => ({ ...told(bytes('upload 1')), budget: round.privacy, spent, data: bytes('upload 1') });
answers.explain = (_, data) => ({ ...told(data), budget: round.privacy });
`, chosen+c.then+`
await compute();
await rest();
console.log(faults.join(), store.get('ledger'), store.has('upload g 7 me'),
  panels.leaves.includes('madeOnce'));
`)
		wants(t, name, got, c.want+"\n")
	}
}

// TestAsksNothingMeanwhile: while an upload is made no request goes out, whose moment would tell how
// long the photographs took. A question that came up is asked once it is made.
func TestAsksNothingMeanwhile(t *testing.T) {
	got := stubbed(t, "join.js", served, chosen+`
let done;
answers.compress = () => new Promise(ok => { done = ok; });
const asks = () => calls.filter(c => ['ask', 'round'].includes(c.method)).length;
const computed = compute();
await until(() => done);
await rest();
const before = asks();
presses.focus();
presses.visibilitychange();
await rest();
const meanwhile = asks() - before;
done({ digest: 'upload 1', points: [], images: 1, data: bytes('upload 1') });
await computed;
await rest();
console.log(meanwhile, asks() - before);
`)
	wants(t, "", got, "0 1\n")
}

// TestTrusted: of a private upload the page says who reads the exact counts, and where the browser
// may clear the ledger. One to which a server adds the noise is kept for that server alone.
func TestTrusted(t *testing.T) {
	for noise, want := range map[string]string{"local": "noneOfAll true\n", "trusted": "noneOfTrusted true\n"} {
		of := map[string]string{"local": "me", "trusted": "k me"}[noise]
		got := stubbed(t, "join.js", served+"round.privacy = { epsilon: 1, delta: 1e-5, noise: '"+noise+"' };\n"+
			"store.set('upload g 7 "+of+"', bytes('upload 0'));\n"+
			"answers.explain = () => ({ digest: 'upload 0', points: [], budget: round.privacy });", `
await until(() => panels.leaves?.includes('madeOnce'));
console.log([...new Set(said)].filter(s => /^noneOf/.test(s)).join(), panels.leaves.includes('ledgerUnsafe'));
`)
		wants(t, noise, got, want)
	}
}

// TestWalked: a chooser hands the files on before a folder was walked, and names a folder that cannot
// be read.
func TestWalked(t *testing.T) {
	got := modules(t, `
globalThis.localStorage = { getItem: () => null }, globalThis.indexedDB = { open: () => ({}) };
globalThis.FileList = globalThis.File = class {};
const made = [], texts = [];
globalThis.document = { createElement: () => {
  const on = {};
  made.push(on);
  return { addEventListener: (k, f) => { on[k] = f; }, setAttribute() {}, replaceChildren() {},
    append: (...c) => texts.push(...c.filter(s => typeof s === 'string')), classList: { remove() {} } };
} };
const { chooser } = await import('./common.js');
let files;
chooser('', [], async chosen => { files = chosen; await chosen; });
const entry = { isFile: true, fullPath: '/cat/a.png', file: ok => setTimeout(ok, 1, 'a') };
made.find(on => on.drop).drop({ preventDefault() {}, dataTransfer: { items: [{ webkitGetAsEntry: () => entry }] } });
console.log(files instanceof Promise, JSON.stringify(await files));
const closed = { fullPath: '/cat', createReader: () => ({ readEntries: (_, no) => no(new Error('denied')) }) };
const items = [{ webkitGetAsEntry: () => closed }];
await made.find(on => on.drop).drop({ preventDefault() {}, dataTransfer: { items } });
console.log(texts.at(-1));
`)
	wants(t, "", got, "true [{\"path\":\"cat/a.png\",\"file\":\"a\"}]\ncat: denied\n")
}

// TestReleaseGone: photographs may take the place of a private upload while the page reads the
// ledger to show it.
func TestReleaseGone(t *testing.T) {
	got := stubbed(t, "join.js", served+"round.privacy = { epsilon: 1, delta: 1e-5, noise: 'local' };\n"+
		"store.set('upload g 7 me', bytes('upload 0'));\n"+
		"answers.explain = () => ({ digest: 'upload 0', points: [], budget: round.privacy });\n"+`
let faults = 0;
process.on('unhandledRejection', () => { faults++; });
const recall = common.recall;
let read;
common.recall = name => name === 'ledger' ? new Promise(ok => { read = ok; }) : recall(name);
`, `
await until(() => read);
const shown = read;
await takes.folder([file('cat/a.png', 'a')]);
shown('');
await rest();
console.log(faults, panels.leaves.includes('madeOnce'));
`)
	wants(t, "", got, "0 false\n")
}

// TestFocus: where the keyboard was in a panel that is filled anew, it stays in it.
func TestFocus(t *testing.T) {
	got := modules(t, `
globalThis.localStorage = { getItem: () => null }, globalThis.indexedDB = { open: () => ({}) };
let within = true, focused = 0;
const panel = { contains: e => e === 'button' && within, replaceChildren() { within = false; },
  focus() { focused++; } };
globalThis.document = { activeElement: 'button', getElementById: () => panel };
const { show } = await import('./common.js');
show('leaves');
console.log(focused, panel.tabIndex);
show('leaves');
console.log(focused);
`)
	wants(t, "", got, "1 -1\n1\n")
}

// TestKeysAreKept: another key, of the same name or not, leaves those before it in the browser, to
// be chosen again; where it cannot be kept the page says so, and overwrites none.
func TestKeysAreKept(t *testing.T) {
	got := stubbed(t, "join.js", served+`
let n = 0;
answers.newKey = () => ({ name: 'me', line: 'ed25519 ' + ++n + ' me', data: bytes('secret ' + n) });
answers.readKey = (_, data) => ({ name: 'me', line: 'ed25519 ' + (text(data).slice(7) || 'old') + ' me' });
`, `
const keys = () => [...store].filter(([k]) => k.startsWith('key')).map(([k, v]) => k + '=' + text(v)).join();
const print = () => console.log(keys(), panels.name.includes('unkeptKey'));
await until(() => presses['other-key']);
print();
for (full of [false, false, true]) {
  presses['other-key']();
  await rest();
  presses.form({ preventDefault() {} });
  await rest();
  print();
}
full = false;
presses.button = undefined;
presses['other-key']();
await rest();
await presses.button();
print();
`)
	wants(t, "", got, `key=key,key ed25519 old me=key false
key=secret 1,key ed25519 old me=key,key ed25519 1 me=secret 1 false
key=secret 2,key ed25519 old me=key,key ed25519 1 me=secret 1,key ed25519 2 me=secret 2 false
key=secret 2,key ed25519 old me=key,key ed25519 1 me=secret 1,key ed25519 2 me=secret 2 true
key=secret 2,key ed25519 old me=key,key ed25519 1 me=secret 1,key ed25519 2 me=secret 2,key ed25519 3 me=secret 3 false
`)
}

// TestUnreadKey: a kept key that could not be read at once is offered again, and stays where another
// takes its place; where it cannot be kept it is not overwritten.
func TestUnreadKey(t *testing.T) {
	const before = `
let ended = true;
answers.newKey = { name: 'new', line: 'ed25519 new new', data: bytes('secret') };
answers.readKey = (_, data) => {
  if (ended) throw new Error('ended');
  return { name: 'me', line: 'ed25519 ' + text(data) + ' me' };
};
`
	const print = `
await rest();
const keys = [...store].map(([k, v]) => k.replace(/[? ]+2.*Z/, ' ?') + '=' + text(v)).filter(k => k.startsWith('key'));
console.log(keys.join(), panels.name.includes('unkeptKey'), faults.join());
`
	for name, c := range map[string]struct{ then, want string }{
		"again": {"ended = false; await presses.button();",
			"key=key,key ed25519 key me=key false ended\n"},
		"another": {"ended = false; presses.form({ preventDefault() {} });",
			"key=secret,key ? ?=key,key ed25519 new new=secret false ended\n"},
		"full storage": {"full = true; presses.form({ preventDefault() {} });", "key=key true ended\n"},
		"full storage for a while": {"full = true; presses.form({ preventDefault() {} }); await rest(); full = false; " +
			"presses['other-key'](); await rest(); presses.form({ preventDefault() {} });",
			"key=secret,key ? ?=key,key ed25519 new new=secret false ended\n"},
	} {
		got := stubbed(t, "join.js", served+before, "await until(() => presses.form); await rest();\n"+c.then+print)
		wants(t, name, got, c.want)
	}
}

// TestRounds: rounds are told by all their digits, and a host that answers every path with a page
// is no server.
func TestRounds(t *testing.T) {
	const big = "9007199254740993"
	for name, c := range map[string]struct{ module, before, more, want string }{
		"a folder": {"join.js", "list = '<!doctype html>'; here = '{\"round\": \"" + big + "\"}';", `
await until(() => takes.folder);
await takes.folder([file('cat/a.png', 'a')]);
await presses.compute();
console.log(calls.find(c => c.method === 'compress').round, values.round.round);
`, big + " " + big},
		"a folder of before": {"join.js", "list = '<!doctype html>';", `
await until(() => takes.folder);
console.log(values.roundSaved.round === '7');
`, "true"},
		"a classifier": {"predict.js", "list = '{\"rounds\": [{\"round\": " + big + "}]}';", `
await until(() => values.roundOn);
console.log(values.roundOn.round);
`, big},
	} {
		wants(t, name, stubbed(t, c.module, c.before, c.more), c.want+"\n")
	}
}

// modules runs modules of the pages that stand without others, with the browser's parts that more
// stubs.
func modules(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	files := must.Get(embedded())(t)
	files["package.json"], files["main.js"] = []byte(`{"type": "module"}`), []byte(`
import { readFileSync } from 'node:fs';
globalThis.location = { search: '?lang=de' };
Object.defineProperty(globalThis, 'navigator', { value: { languages: [] } });
globalThis.fetch = async url => ({ json: async () => JSON.parse(readFileSync(url)) });
`+more)
	for name, data := range files {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return node(t, filepath.Join(dir, "main.js"))
}

// TestStorageRefused: a page loads where the browser refuses its storage, and says of each value
// whether it is kept; a release is not made.
func TestStorageRefused(t *testing.T) {
	for name, c := range map[string]struct{ base, want string }{
		"no base": {"open() { throw new Error('refused'); }", "undefined false false\n"},
		"its error": {"open() { const r = { error: 'refused' }; setTimeout(() => r.onerror(), 1); return r; }",
			"undefined false false\n"},
		"full": {`open() {
    const base = { transaction() {
      const t = { objectStore: () => ({ transaction: t, get: () => {
        const r = { result: 'there' };
        setTimeout(() => { try { r.onsuccess?.(); t.oncomplete(); } catch { t.onabort(); } }, 1);
        return r;
      }, put() { throw new Error('full'); } }) };
      return t;
    } }, r = { result: base };
    setTimeout(() => r.onsuccess(), 1);
    return r;
  }`, "there false false\n"},
	} {
		got := modules(t, `
Object.defineProperty(globalThis, 'localStorage', { get() { throw new Error('refused'); } });
globalThis.indexedDB = { `+c.base+` };
const { recall, keep, spend } = await import('./common.js');
console.log(await recall('a'), await keep('a', 1), await spend('there', 'line', 'a', 1).then(() => true, () => false));
`)
		wants(t, name, got, c.want)
	}
}

// TestAllIsShown: the page draws a strip for each average, sum and single image that leaves, however
// many there are.
func TestAllIsShown(t *testing.T) {
	for name, c := range map[string]struct{ upload, want string }{
		"few":         {"points: points(10)", "10\n"},
		"many":        {"points: points(300)", "300\n"},
		"behind many": {"points: points(70), singles: points(20)", "90\n"},
		"sums":        {"points: points(100), budget: { noise: 'local' }, spent: { epsilon: 1 }", "100\n"},
	} {
		got := stubbed(t, "join.js", served+`
let strips = 0;
const was = common.el;
common.el = (tag, ...more) => { if (tag === 'canvas') strips++; return was(tag, ...more); };
globalThis.ImageData = class { constructor(n) { this.data = new Uint8Array(4 * n); } };
globalThis.getComputedStyle = () => ({ getPropertyValue: () => '#102030' });
const points = n => Array.from({ length: n }, () => ({ class: 0, images: 9, shades: btoa('abc') }));
answers.compress = () => ({ digest: 'one', images: 9, data: bytes('one'), `+c.upload+` });
`, chosen+`
await compute();
console.log(strips);
`)
		if got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

// TestFigures: figures are written as the language writes them, with all their digits.
func TestFigures(t *testing.T) {
	got := modules(t, `
globalThis.localStorage = { getItem: () => null };
const { t } = await import('./words.js');
for (const n of [.0123456, 1e-7, 1234567]) console.log(t('count', { n }));
console.log(t('round', { round: '9007199254740993' }));
`)
	wants(t, "", got, "Anzahl 0,0123456\nAnzahl 0,0000001\nAnzahl 1.234.567\nRunde 9007199254740993\n")
}

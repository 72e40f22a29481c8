package page

import "testing"

// hurried lets a thousand seconds of the page's timers pass in one. silent answers no request until
// it is given up.
const hurried = `
const timer = setTimeout;
globalThis.setTimeout = (act, ms, ...more) => timer(act, ms / 1000, ...more);
const silent = (_, { signal }) => new Promise((_, fail) => {
  const idle = timer(() => {}, 1e6);
  signal.addEventListener('abort', () => { clearTimeout(idle); fail(signal.reason); });
});
`

// TestFetched: a request ends in time whatever the server does, its reply is bounded, and an error
// says whether the same request may have an answer later.
func TestFetched(t *testing.T) {
	for name, c := range map[string]struct{ fetch, of, want string }{
		"a reply": {`new Response('text')`, "{}", "4"},
		"a long one": {`new Response(endless())`, "{}",
			"undefined undefined a reply of more than 65536 bytes, ended"},
		"a file": {`new Response(new Uint8Array(70000))`, "{ most: 70000 }", "70000"},
		"more of it": {`new Response(endless())`, "{ most: 70000 }",
			"undefined undefined a reply of more than 70000 bytes, ended"},
		"nothing":    {`silent(...of)`, "{}", "undefined true unreachable"},
		"no network": {`Promise.reject(new TypeError('failed'))`, "{}", "undefined true unreachable"},
		"half of it": {`new Response(half())`, "{ most: 70000 }", "undefined true unreachable"},
		"broken off": {`new Response(half(new TypeError('lost')))`, "{}", "undefined true unreachable"},
		"a refusal": {`refused(404, '{"title": "No", "detail": "round", "code": "no-round"}')`, "{}",
			"404 false No: round, no-round"},
		"too busy": {`refused(503, '{"title": "Later"}')`, "{}", "503 true Later"},
		"a long page": {`refused(502, endless())`, "{ most: 1 }",
			"502 true the server answered 502 , ended"},
		"stopped": {`(timer(() => stop.abort(new Error('stopped')), 5), silent(...of))`,
			"{ signal: stop.signal }", "undefined undefined stopped"},
		"elsewhere": {`({ status: 0, statusText: '', headers: new Headers(), body: null })`, "{}",
			"0 false the server answered 0 "},
	} {
		got := modules(t, `
globalThis.localStorage = { getItem: () => null };
const { fetched } = await import('./server.js');
globalThis.document = { baseURI: 'http://here/join/' };
`+hurried+`
const stop = new AbortController();
let ended = '';
const endless = (left = 200) => new ReadableStream({
  pull(c) { left-- ? c.enqueue(new Uint8Array(9000)) : c.error(new Error('read on')); },
  cancel() { ended = ', ended'; } });
const half = fault => new ReadableStream({
  start(c) { c.enqueue(new Uint8Array(9)); },
  pull(c) { if (fault) c.error(fault); else return new Promise(() => {}); } });
const refused = (status, body) => new Response(body, { status });
// As in a browser, what is read of a reply ends with its request.
const fetch = async (...of) => `+c.fetch+`;
globalThis.fetch = async (url, of) => {
  const reply = await fetch(url, of), reader = reply.body?.getReader();
  if (!reader) return reply;
  const { ok, status, statusText, headers } = reply;
  const given = new Promise((_, fail) => of.signal.addEventListener('abort', () => fail(of.signal.reason)));
  given.catch(() => reader.cancel().catch(() => {}));
  const read = () => Promise.race([given, reader.read()]);
  return { ok, status, statusText, headers, body: { getReader: () => ({ read }) } };
};
const idle = timer(() => {}, 1e6);
const say = e => e.message.replace(/.*nicht zu erreichen/, 'unreachable') + (e.code ? ', ' + e.code : '') + ended;
await fetched('/', `+c.of+`).then(data => console.log(data.length), e => console.log(e.status, e.transient, say(e)));
clearTimeout(idle);
`)
		wants(t, name, got, c.want+"\n")
	}
}

// TestAsksAgain: a server that has no answer for now is asked again, and is not taken for a host
// without one.
func TestAsksAgain(t *testing.T) {
	// first lets the first request whose method and address match fail.
	const first = `
let failing = true;
const first = (of, fail) => {
  const next = globalThis.fetch;
  globalThis.fetch = (url, more = {}) => {
    if (!failing || !of.test((more.method ?? 'GET') + ' ' + url)) return next(url, more);
    failing = false;
    return fail(url, more);
  };
};
const busy = async () => refused(503, 'busy'), lost = async () => { throw new TypeError('lost'); };
`
	const noFolder = served + "here = '<!doctype html>';"
	const numbered = "list = '{\"rounds\": [{\"round\": 8}]}'; "
	const asks = `
await until(() => takes.folder && panels.name);
console.log(said.includes('askedAgain'), said.includes('noServer'), calls.some(c => c.method === 'round'));
`
	const classifies = `
await until(() => values.classifierOf);
console.log(said.includes('askedAgain'), said.includes('noClassifier'), values.classifierOf.from);
`
	for name, c := range map[string]struct{ module, before, more, want string }{
		"the list, busy":       {"join.js", noFolder + "first(/rounds$/, busy);", asks, "true false true"},
		"the list, lost":       {"join.js", noFolder + "first(/rounds$/, lost);", asks, "true false true"},
		"the list, silent":     {"join.js", noFolder + "first(/rounds$/, silent);", asks, "true false true"},
		"the graph":            {"join.js", served + "first(/\\/g$/, silent);", asks, "true false true"},
		"a folder, no network": {"join.js", "first(/rounds$/, lost);", asks, "false false false"},
		"a folder's round":     {"join.js", "first(/round.json$/, busy);", asks, "true false false"},
		"a folder's graph":     {"join.js", "first(/client.onnx$/, silent);", asks, "true false false"},
		"the key": {"join.js", served + "first(/ask$/, silent);", `
await until(() => presses.compute || (takes.folder && !takes.folder([file('cat/a.png', 'a')])));
await until(() => calls.filter(c => c.method === 'ask').length > 1);
await rest();
await takes.folder([file('cat/a.png', 'a')]);
console.log(Boolean(presses.compute));
`, "true"},
		"an upload": {"join.js", served + "first(/^PUT/, silent);", chosen + `
await compute();
await presses['send-upload']();
console.log(sending(), requests.length);
`, "receipt 1"},
		"a withdrawal": {"join.js", served + "first(/^DELETE/, busy);", chosen + `
await compute();
await presses['send-upload']();
await presses.withdraw({ target: { replaceWith() {} } });
await presses['withdraw-sure']();
console.log(panels.send.join(' '));
`, "withdrawn withdrawnHow cannotUndo saveReceipt"},
		"a list for a classifier": {"predict.js", numbered + "first(/rounds$/, busy);", classifies,
			"true false roundOn"},
		"a classifier": {"predict.js", numbered + "first(/onnx$/, silent);", classifies,
			"true false roundOn"},
		"no classifier": {"predict.js", "first(/onnx$/, async () => refused(404, 'none'));", `
await until(() => takes['model-file']);
console.log(said.includes('noClassifier'), faults.join());
`, "true "},
		"another file": {"predict.js", "answers.classifier = () => { throw new Error('a client graph'); };", `
await until(() => takes['model-file']);
console.log(said.includes('noClassifier'), faults.join());
`, "false a client graph"},
		"counts": {"predict.js", numbered + "failing = false; first(/rounds$/, busy);", `
await until(() => takes['score-folder']);
failing = true;
await takes['score-folder']([file('a/cat/0.png', 'one')]);
console.log(calls.some(c => c.method === 'evaluate'), faults.join());
`, "false busy"},
	} {
		wants(t, name, stubbed(t, c.module, hurried+first+c.before, c.more), c.want+"\n")
	}
}

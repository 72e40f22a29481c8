package page

import "testing"

// TestFixed: a page's private upload, and an error in its place, come at one time after the start,
// by a clock that the test turns; work that goes on then is ended.
func TestFixed(t *testing.T) {
	out := script(t, "fixed.js", `
let now = 0, timers = [];
globalThis.setTimeout = (f, ms) => { timers.push({ f, at: now + ms }); return timers.at(-1); };
globalThis.clearTimeout = t => { timers = timers.filter(o => o !== t); };
const idle = async () => { for (let i = 0; i < 50; i++) await null; };
async function turn(to) {
  await idle();
  for (;;) {
    const next = timers.filter(t => t.at <= to).sort((a, b) => a.at - b.at)[0];
    if (!next) break;
    now = next.at;
    timers = timers.filter(t => t !== next);
    next.f();
    await idle();
  }
  now = to;
}
const wait = ms => new Promise(r => setTimeout(r, ms));
for (const [name, work] of [['fast', async () => 'made'], ['slow', async () => { await wait(59000); return 'made'; }],
  ['bad', async () => { throw new Error('unread'); }], ['late', () => new Promise((_, reject) => { globalThis.stop = reject; })]]) {
  const start = now;
  let says;
  const say = what => { says = what + ' ' + (now - start); };
  fixed(60, work, () => globalThis.stop(new Error('late'))).then(say, e => say(e.message));
  await turn(start + 59999);
  const early = says;
  await turn(start + 60000);
  console.log(name, early, says);
}
`)
	const want = "fast undefined made 60000\nslow undefined made 60000\nbad undefined unread " +
		"60000\nlate undefined late 60000\n"
	if out != want {
		t.Errorf("%s; want %s", out, want)
	}
}

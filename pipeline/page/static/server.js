// Requests to the server that the page came from: each ends, takes a bounded reply, and says whether to ask again.
import { t } from './words.js';

export const at = path => '..' + path; // the page lies in a folder of the server's

export const mostFile = 1 << 28; // bytes of a graph or classifier, as in fmp-edge
const mostReply = 1 << 16;       // of any other reply, as in fmp-edge
const patience = 60000;          // ms without an answer, or without more of a file

// since counts the seconds from its call, by the clock that says more: the one stands still while some machines sleep, and the other can be set.
export function since() {
  const ticks = performance.now(), date = Date.now();
  return () => Math.max(performance.now() - ticks, Date.now() - date) / 1000;
}

// fetched returns the body of a reply of at most so many bytes, and tells how much of it came; signal ends it. An error is transient where
// the same request may have an answer later.
export async function fetched(path, { most = mostReply, progress, signal, body, ...request } = {}) {
  signal?.throwIfAborted();
  const end = new AbortController();
  let timer, late = false;
  const wait = ms => { clearTimeout(timer); timer = setTimeout(() => { late = true; end.abort(); }, ms); };
  signal?.addEventListener('abort', () => end.abort(), { signal: end.signal });
  try {
    wait(patience + (body?.size ?? body?.length ?? 0)); // a second for each kB that is sent
    const reply = await fetch(new URL(path, document.baseURI), { ...request, body, signal: end.signal });
    const all = Number(reply.headers.get('Content-Length')) || 0, parts = [];
    let n = 0;
    for (const reader = reply.body?.getReader(); reader;) {
      if (most > mostReply) wait(patience);
      const { done, value } = await reader.read();
      if (done) break;
      n += value.length;
      if (n > most && reply.ok) throw new Error(`a reply of more than ${most} bytes`);
      if (n > mostReply && !reply.ok) break;
      parts.push(value);
      progress?.(n, all);
    }
    const data = new Uint8Array(await new Blob(parts).arrayBuffer());
    if (reply.ok) return data;
    throw refusal(reply, data);
  } catch (e) {
    signal?.throwIfAborted();
    if (late || e instanceof TypeError) throw Object.assign(new Error(t('unreachable')), { transient: true });
    throw e;
  } finally {
    clearTimeout(timer);
    end.abort(); // what is left of the reply
  }
}

// refusal says why a server refused (RFC 9457).
function refusal({ status, statusText }, data) {
  let why, code;
  try {
    const p = JSON.parse(new TextDecoder().decode(data));
    why = p.detail ? `${p.title}: ${p.detail}` : p.title ?? p.error ?? statusText;
    code = p.code;
  } catch { why = `the server answered ${status} ${statusText}`; }
  return Object.assign(new Error(why), { status, code, transient: [408, 429, 500, 502, 503, 504].includes(status) });
}

// rounds returns the server's list of rounds, and nothing where this host is no server of ours: it refuses, redirects or shows a page.
export async function rounds() {
  try {
    const list = await fetched(at('/v1/rounds'), { redirect: 'manual' });
    JSON.parse(new TextDecoder().decode(list)); // some hosts answer every path with a page
    return list;
  } catch (e) { if (e.transient) throw e; }
}

// patient works until there is an answer, and tells each time why it waits and how long, in seconds; signal ends it.
export async function patient(work, tell, signal) {
  for (let wait = 500; ; wait = Math.min(2 * wait, 60000)) {
    try {
      return await work();
    } catch (e) {
      if (!e.transient) throw e;
      tell(e.message, wait / 1000);
    }
    await new Promise((ok, no) => {
      const timer = setTimeout(ok, wait * (.5 + Math.random() / 2));
      signal?.addEventListener('abort', () => { clearTimeout(timer); no(signal.reason); }, { once: true });
    });
  }
}

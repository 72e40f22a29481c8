// fixed gives what work gives, or its error, at a fixed time after the start, so that the moment tells nothing of what work was done on. The
// program itself cannot wait: it answers within one call of the browser's. At that time late is called where work goes on; it ends it.
export async function fixed(seconds, work, late) {
  let timer;
  const end = new Promise(resolve => { timer = setTimeout(resolve, 1000 * seconds); });
  let over = false;
  end.then(() => { if (!over) late(); });
  try { return await work(); } finally { over = true; await end; clearTimeout(timer); }
}

// Package sender implements the client's side of a round over HTTP: it asks for the round's
// description, downloads the client graph once, sends an upload until the server has it, and keeps
// the receipt. It retries after a failure of the connection, of the server or of itself, until the
// deadline, and beyond it where the round takes late uploads.
//
// It depends on the standard library alone, as it is part of the program for small devices.
package sender

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/loopback"
	"fmp/pipeline/federate/wire"
)

// Backoff between attempts: the n-th waits for a time drawn uniformly between half of Base 2^n and
// Base 2^n, at most Top. Half of each wait is fixed and half is drawn: equal jitter. Waits double,
// so that a server that is down gets few requests.
const (
	Base = 500 * time.Millisecond
	Top  = time.Minute
)

// requestTime is the timeout of one attempt, and of each read of the client graph's download. An
// upload and a download have a second more for each slowest bytes, so that an upload may come as
// slowly as servers accept it by default. The largest upload of a round, 4 MiB, so has 4096 seconds
// more.
const requestTime, slowest = time.Minute, 1 << 10

// maxCertificates is the maximum size of a file of trusted certificates: 4 MiB, more than the
// largest bundle of an operating system.
const maxCertificates = 4 << 20

// lastTry bounds how long before the last moment the last attempt begins.
const lastTry = 5 * time.Second

// ErrClosed means that the round's deadline has passed, or that the server says so. It is final: a
// caller has to ask the operator for the next round. Errors wrap it, and errors.Is tells it.
var ErrClosed = errors.New("the round is closed")

// Client talks to one server. Create it with [New]. It is for one goroutine at a time: calls set
// the moment until which later ones retry.
type Client struct {
	http *http.Client
	base string
	// Log, if not nil, is called after every failed attempt, with the delay until the next.
	Log func(format string, args ...any)
	// Wait is how long to retry a server that does not answer before the deadline is known.
	Wait time.Duration
	// trace is the identifier of the trace that the server's spans belong to, and its flags, as in
	// traceparent.
	trace, flags string
	// over is the last moment to retry by this machine's clock, zero while it is not known: the
	// deadline, or, where the round takes late uploads, Wait after it.
	over time.Time
	late bool
}

// New returns a client of the server at an address: https://HOST:PORT, or http:// on loopback. ca,
// if not empty, is a file of certificates to trust in place of the system's. Proxies are taken from
// the environment (HTTPS_PROXY, NO_PROXY). No request is made. A TRACEPARENT of another form than
// four parts of the right lengths is passed over, and a trace of the client's own begins. After an
// error the client is not for use.
func New(address, ca string) (*Client, error) {
	h, base, err := HTTP(address, ca)
	c := &Client{base: base, Wait: 24 * time.Hour, http: h, trace: random(16), flags: "01"}
	if p := strings.Split(os.Getenv("TRACEPARENT"), "-"); len(p) == 4 && len(p[1]) == 32 &&
		len(p[3]) == 2 &&
		strings.Trim(p[1]+p[3], "0123456789abcdef") == "" {
		c.trace, c.flags = p[1], p[3]
	}
	return c, err
}

// traceparent returns the W3C trace context of one request: the client's requests are one trace,
// that of TRACEPARENT where it is set. It is version 00, trace, span and flags: 1, 16, 8 and 1
// bytes in hexadecimal. The span is drawn anew for each attempt, so that retries are told apart.
func (c *Client) traceparent() string { return "00-" + c.trace + "-" + random(8) + "-" + c.flags }

// random returns bytes in hexadecimal. They name traces, and need not be secret.
func random(bytes int) string {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(b)
}

// HTTP returns an HTTP client for a server, and the server's base URL, to which paths are appended.
// See [New] for the arguments. Errors quote no password and no token of an address: nothing from a
// ? or # on, and nothing before an @ that may end a password.
//
// Redirects are returned and not followed: a signed request is for the address that its owner gave
// alone. The wait for the head of an answer is at most requestTime. A body has no limit of time
// here: that is the request's context. Plain HTTP goes past every proxy.
func HTTP(address, ca string) (*http.Client, string, error) {
	u, err := url.Parse(address)
	shown := address
	// A password with a / in it is read as a port with a path behind it.
	if err != nil || u.User != nil || u.Host == "" ||
		strings.Contains(u.RawQuery+u.Fragment, "@") || u.Port() != "" && strings.Contains(u.Path, "@") {
		shown = address[strings.LastIndex(address, "@")+1:]
	}
	if i := strings.IndexAny(shown, "?#"); i >= 0 {
		shown = shown[:i]
	}
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return nil, "", fmt.Errorf("server %q; want https://HOST:PORT", shown)
	case u.User != nil:
		return nil, "", errors.New("the server's address holds a password; a client is known by " +
			"its key alone")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, "", fmt.Errorf("server %s: its address has a ? or #, and nothing from there on "+
			"would be sent; want https://HOST:PORT", shown)
	case u.Scheme == "http" && !loopback.Host(u.Hostname()):
		return nil, "", fmt.Errorf("server %s: plain HTTP is for loopback alone; use "+
			"https://", shown)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if u.Scheme == "http" {
		t.DialContext, t.Proxy = loopback.Dial, nil
	}
	t.ResponseHeaderTimeout = requestTime
	if ca != "" {
		pem, err := regularfile.ReadFile(ca, maxCertificates)
		if err != nil {
			return nil, "", fmt.Errorf("certificates: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, "", fmt.Errorf("certificates %s: no certificate in PEM", ca)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: t,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}},
		strings.TrimSuffix(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), nil
}

// transient is a failure that a retry may overcome. Errors of another type end [Client.try] at
// once, and are returned as they are.
type transient struct {
	err   error
	after time.Duration // delay that the server asked for
}

func (e *transient) Error() string { return e.err.Error() }
func (e *transient) Unwrap() error { return e.err }

// attempt is the timeout of one attempt. While no deadline is known it is not longer than the
// client waits in all. A Wait of 0 or less bounds no attempt: it allows one, and no second.
func (c *Client) attempt() time.Duration {
	if c.over.IsZero() && c.Wait > 0 {
		return min(requestTime, c.Wait)
	}
	return requestTime
}

// try calls once until it succeeds, fails permanently, or the deadline passes. The n-th wait, from
// 0, is uniform between w/2 and w = min(Base 2^n, Top). It is at least as long as the server asked
// for. Clients that lost a server at one moment thus do not come back at one moment. A wait that
// would end after the last moment is shortened: one last attempt begins within lastTry before it,
// at a time that is drawn. Where that fails too, the last moment is waited for. The end of ctx is
// returned as its own error, without that of the attempt.
func (c *Client) try(ctx context.Context, what string, once func(ctx context.Context) error) error {
	start := time.Now()
	for n, final := 0, false; ; n++ {
		err := once(ctx)
		var t *transient
		if err == nil || !errors.As(err, &t) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := min(Base<<min(n, 20), Top)
		wait = max(wait/2+rand.N(wait/2), t.after)
		last := start.Add(c.Wait)
		if !c.over.IsZero() {
			last = c.over
		}
		left := time.Until(last)
		if final && left > 0 {
			if err := pause(ctx, left); err != nil {
				return err
			}
		}
		if final || left <= 0 {
			if c.late || c.over.IsZero() {
				return fmt.Errorf("%s: no answer for %v: %w", what,
					time.Since(start).Round(time.Second), err)
			}
			return fmt.Errorf("%s: %w: its deadline was %s and the last attempt failed: %w",
				what, ErrClosed, c.over.Format(time.RFC3339), err)
		}
		if final = wait >= left; final {
			wait = left - rand.N(min(left, lastTry))
		}
		if c.Log != nil {
			c.Log("%s: %v; again in %v", what, err, wait.Round(100*time.Millisecond))
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// do sends one request and reads its reply of at most wire.MaxJSON bytes. Connection failures, and
// replies that ask for a retry, are transient. One byte beyond the bound is read, by which
// [wire.Unmarshal] knows a reply that is too long.
func (c *Client) do(req *http.Request) ([]byte, error) {
	req.Header.Set("Accept", "application/json")
	resp, err := c.answer(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxJSON+1))
	if err != nil {
		return nil, &transient{err: err}
	}
	if resp.StatusCode < 300 {
		return data, nil
	}
	return nil, c.refusal(resp, data)
}

// answer sends one request and returns the beginning of its answer. A retry is useless where an
// error is due to the server's certificate, unless its time has ended or not begun: the operator
// renews it. The body of the answer is the caller's to close.
func (c *Client) answer(req *http.Request) (*http.Response, error) {
	req.Header.Set("Traceparent", c.traceparent())
	resp, err := c.http.Do(req)
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		err = fmt.Errorf("%w; where the server has a certificate of its own, --ca names "+
			"its file", err)
	}
	var invalid x509.CertificateInvalidError
	renewable := errors.As(err, &invalid) && invalid.Reason == x509.Expired
	if err != nil && (renewable || !errors.As(err, new(*tls.CertificateVerificationError))) {
		err = &transient{err: err}
	}
	return resp, err
}

// refusal returns the error for a reply that is not a success. Codes of HTTP that say that the
// server may answer otherwise later are transient: 408, 429, 500, 502, 503 and 504. Its Retry-After
// is kept to, but for no longer than Top. A round that is closed is ErrClosed. Retry-After is read
// as seconds (RFC 9110, section 10.2.3): a date counts as none. Other problems come as
// [wire.Problem], whose code a caller may test.
func (c *Client) refusal(resp *http.Response, data []byte) error {
	var err error
	p := &wire.Problem{}
	if e := wire.Unmarshal(data, p); e != nil || p.Code == "" {
		err = fmt.Errorf("%s answered %d %s", c.base, resp.StatusCode,
			http.StatusText(resp.StatusCode))
		if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < 400 {
			err = fmt.Errorf("%w to %q: redirects are not followed; check the address", err, to)
		}
	} else if p.Code == wire.RoundClosed {
		return fmt.Errorf("%w: %s", ErrClosed, wire.Printable(p.Detail))
	} else {
		err = p
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		after, e := strconv.Atoi(resp.Header.Get("Retry-After"))
		if e != nil || after < 0 {
			after = 0
		}
		return &transient{err, min(time.Duration(after)*time.Second, Top)}
	}
	return err
}

// Describe requests the description of the server's round. The round's end is taken over as the
// time left by the server's clock, added to this machine's: the two clocks need not agree. Later
// calls of the client retry until then. A reply that is no description is an error at once, as a
// wrong address gives the same again.
func (c *Client) Describe(ctx context.Context) (*wire.Description, error) {
	var d *wire.Description
	err := c.send(ctx, request{"asking for the round", http.MethodGet, "/v1/rounds", nil, nil},
		func(began time.Time, reply []byte) (err error) {
			if d, err = wire.One(reply, began); err != nil {
				err = fmt.Errorf("%s/v1/rounds: %w; check the address", c.base, err)
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	// Retries end by the later bound, as a try too late costs nothing; that of a budget
	// ([wire.Description.TooLate]) is the earlier.
	left, came := d.Deadline.Sub(d.Now), time.Now()
	c.over = came.Add(left)
	if c.late = d.AcceptLate || d.State == wire.Late; c.late {
		c.over = came.Add(max(left, 0)).Add(c.Wait) // a sum of two durations may overflow
	}
	return d, nil
}

// Graph downloads the round's client graph into a folder, in a file named after its digest, and
// returns its path. A file that exists is verified and not downloaded again; an interrupted
// download is resumed.
// The file takes its name once its digest is right, so that a file of that name is always whole.
// Several processes may share the folder.
//
// The folder is made where it is missing. After a failed download its bytes stay in a file that
// ends in .part, from which the next call goes on. Those of a process that found another at work
// are removed, and so are bytes of another digest. Finding the file costs a read of all its bytes.
func (c *Client) Graph(ctx context.Context, d *wire.Description, dir string) (string, error) {
	if d.GraphBytes > wire.MaxGraph {
		return "", fmt.Errorf("the client graph has %d bytes; allowed are %d",
			d.GraphBytes, wire.MaxGraph)
	}
	path := filepath.Join(dir, d.Graph+".onnx")
	whole := func() bool {
		sum, err := digestOf(path)
		return err == nil && sum == d.Graph
	}
	if whole() {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("client graph: %w", err)
	}
	// The partial file belongs to one process; another that arrives meanwhile downloads the graph
	// for itself.
	part := path + ".part"
	f, err := openPart(part)
	if err == nil {
		var lock io.Closer
		var ok bool
		if lock, ok, err = atomicfile.Lock(part); ok {
			defer func() { // Windows, which locks that file in its place, removes no open one
				lock.Close()
				os.Remove(path + ".part" + atomicfile.LockFile)
			}()
		} else if err == nil {
			f.Close()
			part = fmt.Sprintf("%s.%d.part", path, os.Getpid())
			defer os.Remove(part)
			f, err = openPart(part)
		}
	}
	// another process moved its partial file into place between the two calls
	if errors.Is(err, fs.ErrNotExist) && whole() {
		f.Close()
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("client graph: %w", err)
	}
	defer f.Close()
	if err := c.download(ctx, d, f); err != nil {
		if info, e := f.Stat(); e == nil && info.Size() == 0 {
			f.Close()
			os.Remove(part)
		}
		return "", err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("client graph: %w", err)
	}
	sum, err := digestOf(part)
	if err == nil && sum == d.Graph {
		err = os.Rename(part, path)
	} else if err == nil {
		os.Remove(part)
		return "", fmt.Errorf("the client graph that came has sha256 %s; the round says %s: it "+
			"is not used", sum, d.Graph)
	}
	// another process may just have moved it into place
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && whole()) {
		return "", fmt.Errorf("client graph: %w", err)
	}
	return path, nil
}

// openPart opens the partial file of a graph, or makes it. A link, a named pipe or a folder is
// refused, also where it takes the file's place meanwhile: a shared cache may hold it, and its
// target would be overwritten. It is opened without being cut, as its bytes count toward the
// download. The caller closes it.
func openPart(path string) (*os.File, error) {
	other := &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file; remove it")}
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, other
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	at, err := os.Lstat(path)
	opened, e := f.Stat()
	if err = errors.Join(err, e); err == nil && !os.SameFile(at, opened) {
		err = other
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// digestOf is the SHA-256 of a file, in hexadecimal. One beyond the bound is an error.
func digestOf(path string) (string, error) { return models.DigestFile(path, wire.MaxGraph+1) }

// download fills a partial file of the graph. Bytes that an earlier process left may be damaged, by
// a power cut perhaps: where the digest is another one, all is fetched anew, once. It is that of
// the open file, as another process may have moved that into place. Fresh bytes are not hashed
// here: the caller hashes the file in any case.
func (c *Client) download(ctx context.Context, d *wire.Description, f *os.File) error {
	fetch := func() error {
		return c.try(ctx, "fetching the client graph",
			func(ctx context.Context) error { return c.fetch(ctx, d, f) })
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("client graph: %w", err)
	}
	if err := fetch(); err != nil || info.Size() == 0 {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, d.GraphBytes)); err != nil {
		return fmt.Errorf("client graph: %w", err)
	}
	if hex.EncodeToString(h.Sum(nil)) == d.Graph {
		return nil
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("client graph: %w", err)
	}
	return fetch()
}

// fetch appends the missing bytes to a partial file of the graph. It asks for the rest by a range,
// under the condition that the file is still the one with this digest; a server that sends all
// starts the file anew. Besides the limit of the whole download, requestTime without a byte ends
// it. The digest is checked by the caller, once the file is whole. Range and If-Range are those of
// RFC 9110, sections 14.2 and 13.1.5. A file that is longer than the graph is damaged, and is begun
// anew.
func (c *Client) fetch(ctx context.Context, d *wire.Description, f *os.File) error {
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("client graph: %w", err)
	}
	if have == d.GraphBytes {
		return nil
	}
	if have > d.GraphBytes {
		have = 0
	}
	ctx, cancel := context.WithTimeout(ctx,
		requestTime+time.Duration((d.GraphBytes-have)/slowest)*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+wire.GraphPath(d.Round), nil)
	if err != nil {
		return err
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		req.Header.Set("If-Range", `"`+d.Graph+`"`)
	}
	resp, err := c.answer(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		have = 0
	case http.StatusPartialContent:
	default:
		data, _ := io.ReadAll(io.LimitReader(resp.Body, wire.MaxJSON+1))
		return c.refusal(resp, data)
	}
	_, err = f.Seek(have, io.SeekStart)
	if err := errors.Join(f.Truncate(have), err); err != nil {
		return fmt.Errorf("client graph: %w", err)
	}
	stalled := time.AfterFunc(requestTime, cancel)
	defer stalled.Stop()
	return keep(f, readerFunc(func(p []byte) (int, error) {
		stalled.Reset(requestTime)
		return resp.Body.Read(p)
	}), have, d.GraphBytes)
}

// keep writes the rest of a graph behind the bytes that a file has, up to all of them. A failure of
// the file is final, as no server mends a full disk; one of the connection is transient. Bytes
// beyond all are not read. The bytes that were kept stay in the file, and the next attempt asks for
// the rest.
func keep(f *os.File, body io.Reader, have, all int64) error {
	n, err := io.Copy(f, io.LimitReader(body, all-have))
	if errors.As(err, new(*fs.PathError)) {
		return fmt.Errorf("client graph: %d of %d bytes were kept: %w", have+n, all, err)
	}
	if err == nil && have+n < all {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return &transient{err: fmt.Errorf("%d of %d bytes came: %w", have+n, all, err)}
	}
	return nil
}

// readerFunc is an [io.Reader] by a function.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Send signs an upload, sends it until the server has it, and returns the server's verified
// receipt.
// The same upload may be sent any number of times: a server that has it answers with the receipt. A
// receipt that is another's is an error, and is returned with it.
//
// An upload above the round's bound is refused before it is signed. It is signed once for all
// attempts: the signature is of the upload, not of the moment. The receipt's signature, client,
// graph and digest are all checked ([wire.Description.Accept]).
func (c *Client) Send(ctx context.Context, d *wire.Description, key *identity.Key,
	data []byte) (*wire.Receipt, error) {
	if len(data) > d.MaxBytes {
		err := fmt.Errorf("the upload has %d bytes; the round allows %d (bounds.bytes of the "+
			"server's round file)", len(data), d.MaxBytes)
		if d.Privacy == nil {
			err = fmt.Errorf("%w: made anew with --precision float16 or int8 (join: with --fresh "+
				"too) it is smaller", err)
		}
		return nil, err
	}
	headers, digest := d.Headers(key, data)
	r := &wire.Receipt{}
	put := request{"sending the upload", http.MethodPut, wire.UploadPath(d.Round, key.Name),
		headers, data}
	err := c.send(ctx, put, func(_ time.Time, reply []byte) error {
		if err := wire.Unmarshal(reply, r); err != nil {
			return fmt.Errorf("the receipt of %s: %w; the same command asks for it again",
				c.base, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, d.Accept(r, key.Name, digest)
}

// request is sent to a server; the first text names the purpose. The body is kept whole in memory,
// since every attempt sends it from the beginning.
type request struct {
	what, method, path string
	headers            map[string]string
	body               []byte
}

// send sends a request until it is answered, and has the answer read, with the moment at which its
// attempt began. An error of read is not tried again, unless it is transient. read is called once
// for each attempt that succeeded, and must overwrite the results of an earlier one.
func (c *Client) send(ctx context.Context, r request,
	read func(began time.Time, reply []byte) error) error {
	return c.try(ctx, r.what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx,
			c.attempt()+time.Duration(len(r.body)/slowest)*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path,
			bytes.NewReader(r.body))
		if err != nil {
			return err
		}
		for name, value := range r.headers {
			req.Header.Set(name, value)
		}
		began := time.Now()
		reply, err := c.do(req)
		if err != nil {
			return err
		}
		return read(began, reply)
	})
}

// Receipt requests the receipt of the upload that the server holds of this client. Its signature is
// checked, and not whose upload it is of: the caller compares the digest. A server without an
// upload answers with [wire.NoReceipt].
func (c *Client) Receipt(ctx context.Context, d *wire.Description,
	key *identity.Key) (*wire.Receipt, error) {
	r := &wire.Receipt{}
	err := c.signed(ctx, "asking for the receipt", http.MethodGet,
		wire.ReceiptPath(d.Round, key.Name),
		map[string]string{"Authorization": wire.Authorization(d.Ask(key))}, r)
	if err != nil {
		return nil, err
	}
	return r, r.Verify(d.ServerKey)
}

// signed sends a request without a body until it is answered, and decodes the answer. A refusal is
// an error, and answer is then as it was.
func (c *Client) signed(ctx context.Context, what, method, path string, headers map[string]string,
	answer any) error {
	return c.send(ctx, request{what, method, path, headers, nil},
		func(_ time.Time, reply []byte) error { return wire.Unmarshal(reply, answer) })
}

// Evaluate sends a site's signed report of an evaluation (package tally) until the server has it.
// The deadline is no end to reports: it retries for [Client.Wait]. An answer of success is enough:
// reports have no receipt.
func (c *Client) Evaluate(ctx context.Context, d *wire.Description, key *identity.Key,
	report []byte) error {
	c.over = time.Time{}
	return c.send(ctx, request{"sending the report", http.MethodPut,
		wire.EvaluationPath(d.Round, key.Name), d.Report(key, report), report},
		func(time.Time, []byte) error { return nil })
}

// Withdraw withdraws a client's upload and returns the server's verified receipt. It may be called
// again, for the version that has been made without it by then. A round that is closed takes
// withdrawals too: the client retries for [Client.Wait].
func (c *Client) Withdraw(ctx context.Context, d *wire.Description,
	key *identity.Key) (*wire.Withdrawal, error) {
	return c.withdraw(ctx, d, key.Name, d.Withdraw(key))
}

// WithdrawFor withdraws the upload of a client in the name of the server's operator, who has the
// server's key. It needs no key of the client's, who may have lost it.
func (c *Client) WithdrawFor(ctx context.Context, d *wire.Description, server *identity.Key,
	client string) (*wire.Withdrawal, error) {
	return c.withdraw(ctx, d, client, d.WithdrawFor(server, client))
}

// withdraw sends a signed request to withdraw, after the deadline too.
func (c *Client) withdraw(ctx context.Context, d *wire.Description, client string,
	headers map[string]string) (*wire.Withdrawal, error) {
	c.over = time.Time{}
	w := &wire.Withdrawal{}
	err := c.signed(ctx, "withdrawing", http.MethodDelete,
		wire.UploadPath(d.Round, client), headers, w)
	if err != nil {
		return nil, err
	}
	return w, d.Gone(w, client)
}

// SaveReceipt writes a receipt, of an upload or of a withdrawal, as JSON. The file is its owner's
// alone to read, and takes the place of an earlier one whole.
func SaveReceipt(path string, r any) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WritePrivate(path, append(data, '\n'))
}

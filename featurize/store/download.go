package store

import (
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fmp/featurize/dataset"
	"fmp/onnx/regularfile"
)

// Downloader fetches files over HTTP. The zero value is ready to use. It is safe for several
// goroutines where files differ: two calls for one file would write one part.
type Downloader struct {
	Client *http.Client // default http.DefaultClient
	// Tries is how often each address is tried (default 3), Pause the wait before the second try
	// (default 1s, doubled each time), Stall how long a server may send nothing (default 60s).
	Tries        int
	Pause, Stall time.Duration
	// Progress, if not nil, is called with the bytes of a file that are there; total is -1 where
	// the server does not state it.
	Progress func(name string, done, total int64)
}

// withDefaults returns a copy with all settings, whose client refuses to leave https. The checksums
// would find a changed file. https keeps the request from others' eyes as well.
func (d *Downloader) withDefaults() *Downloader {
	c := *d
	if c.Client == nil {
		c.Client = http.DefaultClient
	}
	// The caller's client stays as it is.
	guarded := *c.Client
	// Ten redirects are the bound of net/http as well.
	guarded.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		if via[0].URL.Scheme == "https" && to.URL.Scheme != "https" {
			return fmt.Errorf("the server sends on to %s, which is not https", to.URL.Redacted())
		}
		if len(via) >= 10 {
			return errors.New("the server sends on ten times")
		}
		return nil
	}
	c.Client = &guarded
	c.Tries = cmp.Or(c.Tries, 3)
	c.Pause = cmp.Or(c.Pause, time.Second)
	c.Stall = cmp.Or(c.Stall, 60*time.Second)
	return &c
}

// errFinal marks an error that another try of the same address would not fix. A fault of the
// server's state, of the network or of the checksum is tried again. An address that answers
// wrongly, or a disk that cannot be written, is not.
var errFinal = errors.New("not tried again")

// Fetch downloads f into dir and returns its path. A file that is there already with the right
// checksum is kept; an interrupted download resumes where it stopped; a file with the wrong
// checksum is removed. The file appears under its name only when it is complete and checked.
// Addresses are tried in turn. The part that is there is kept as NAME.part. ctx ends the waiting
// and the download. A caller calls again to go on. The error is that of the last try.
func (d *Downloader) Fetch(ctx context.Context, f dataset.File, dir string) (string, error) {
	d = d.withDefaults()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("downloading %s: %w", f.Name, err)
	}
	path := filepath.Join(dir, f.Name)
	// A file under its name that fails the check is left until the new one takes its place.
	if err := check(f, path); err == nil {
		return path, nil
	}
	part := path + ".part"
	var errs []error
	for _, url := range f.URLs {
		// Each address begins with the short pause again.
		pause := d.Pause
		for try := range d.Tries {
			if try > 0 {
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
				pause *= 2
			}
			if err := ctx.Err(); err != nil {
				return "", fmt.Errorf("downloading %s: %w; the same command goes on from here",
					f.Name, err)
			}
			err := d.get(ctx, url, part, f)
			if err == nil {
				// A part of another file, or damaged bytes, would be resumed for ever if it stayed.
				if err = check(f, part); err != nil {
					err = fmt.Errorf("%s: %w; what was downloaded is removed", url, err)
					if rm := os.Remove(part); rm != nil {
						err = errors.Join(err, rm)
					}
				} else if err = os.Rename(part, path); err == nil {
					return path, nil
				}
			}
			errs = append(errs, err)
			if errors.Is(err, errFinal) {
				break
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("downloading %s: %w; the same command goes on from here", f.Name, err)
	}
	return "", fmt.Errorf("downloading %s: %w", f.Name, errs[len(errs)-1])
}

// offered returns the byte from which an answer goes on, given those that are here, and the size of
// the whole file, -1 where the server does not state it. The range must begin where the part ends,
// else bytes would be missing or twice.
func offered(res *http.Response, url string, have int64) (from, total int64, err error) {
	switch res.StatusCode {
	case http.StatusOK:
		return 0, res.ContentLength, nil
	case http.StatusPartialContent:
		from, total, ok := contentRange(res.Header.Get("Content-Range"))
		if !ok || from != have {
			return 0, 0, fmt.Errorf("%s: the server was asked for bytes from %d and answered with "+
				"range %q: %w", url, have, res.Header.Get("Content-Range"), errFinal)
		}
		return from, total, nil
	}
	err = fmt.Errorf("%s: the server says %s", url, res.Status)
	// A fault of the server, or too many requests, may pass; a fault of the request stays.
	if res.StatusCode < 500 && res.StatusCode != http.StatusTooManyRequests {
		err = fmt.Errorf("%w: %w", err, errFinal)
	}
	return 0, 0, err
}

// get downloads the rest of the file at url into part, from where part ends. The server is asked
// for bytes from there on (Range, RFC 9110, 14.2). One that sends all of the file begins the part
// anew. No more than f.Max bytes are written. An error leaves the part with all that was written,
// for the next call to resume.
func (d *Downloader) get(ctx context.Context, url, part string, f dataset.File) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if have > f.Max {
		have = 0
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	// Each read sets the timer back: a slow server is waited for, a silent one is left.
	stall := time.AfterFunc(d.Stall, func() { cancel(fmt.Errorf("nothing came for %s", d.Stall)) })
	defer stall.Stop()
	res, err := d.Client.Do(req)
	if err != nil {
		return cause(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return nil // as much as there is, or more, is here already: the checksum tells
	}
	have, total, err := offered(res, url, have)
	if err != nil {
		return err
	}
	// A file that is stated to be too large is not begun.
	if total > f.Max {
		return fmt.Errorf("%s: %d bytes are offered; at most %d are taken: %w", url, total,
			f.Max, errFinal)
	}
	if err := out.Truncate(have); err != nil {
		return err
	}
	if _, err := out.Seek(have, io.SeekStart); err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	for {
		// A read may give bytes and an error at once, so that the bytes are written first.
		n, rerr := res.Body.Read(buf)
		stall.Reset(d.Stall)
		// The server may state nothing, or something else than it sends.
		if have+int64(n) > f.Max {
			return fmt.Errorf("%s: more than %d bytes came: %w", url, f.Max, errFinal)
		}
		if _, err := out.Write(buf[:n]); err != nil {
			return fmt.Errorf("%w: %w", err, errFinal)
		}
		have += int64(n)
		if d.Progress != nil {
			d.Progress(f.Name, have, total)
		}
		if errors.Is(rerr, io.EOF) {
			break
		}
		if rerr != nil {
			return fmt.Errorf("%s: after %d bytes: %w", url, have, cause(ctx, rerr))
		}
	}
	if total >= 0 && have != total {
		return fmt.Errorf("%s: %d of %d bytes came", url, have, total)
	}
	return nil
}

// cause returns why ctx was cancelled, if it was by us, otherwise err. A stalled download is
// cancelled by us, and its own error would say no more than that.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// contentRange reads "bytes FROM-TO/SIZE"; the size is -1 for "*". It is the header Content-Range
// (RFC 9110, 14.4). The end of the span is not checked, as all bytes that come are counted.
func contentRange(s string) (from, size int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, all, ok2 := strings.Cut(s, "/")
	first, _, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, false
	}
	from, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	if all == "*" {
		return from, -1, true
	}
	size, err = strconv.ParseInt(all, 10, 64)
	return from, size, err == nil
}

// check verifies a file's checksums. The file is read once for both. Both must agree. The MD5 is
// the publisher's word, and SHA-256 keeps a forged file out.
func check(f dataset.File, path string) error {
	r, err := regularfile.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	published, ours := md5.New(), sha256.New()
	if _, err := io.Copy(io.MultiWriter(published, ours), r); err != nil {
		return err
	}
	if got := hex.EncodeToString(published.Sum(nil)); !strings.EqualFold(got, f.MD5) {
		return fmt.Errorf("its MD5 checksum is %s; the published one is %s", got, f.MD5)
	}
	if got := hex.EncodeToString(ours.Sum(nil)); !strings.EqualFold(got, f.SHA256) {
		return fmt.Errorf("its SHA-256 checksum is %s; want %s", got, f.SHA256)
	}
	return nil
}

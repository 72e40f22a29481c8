package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fmp/cmd/internal/outputs"
	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
	"fmp/pipeline/tally"
)

// content is a file that is to be written; without data none is to be there. A command lists its
// files in the order in which they take their places; the last is the one that the others go with.
// A file with nil data is a table that an earlier upload left, and is removed. own is asked of the
// bytes that are there before they are replaced.
type content struct {
	path string
	data []byte
	own  func(was []byte) bool // whether a file in its place is an earlier one of the same purpose
}

// anUpload reports whether a file is an upload that nothing was spent on. An upload of a private
// round is none: budget was spent on it.
func anUpload(was []byte) bool {
	_, err := federate.Decode(was, federate.Expect{})
	return err == nil
}

// aReport reports whether a file is a report without noise. Sigma is the deviation of the noise of
// a report's counts.
func aReport(was []byte) bool {
	var r tally.Report
	return json.Unmarshal(was, &r) == nil && r.Classifier != "" && r.Sigma == 0
}

// receiptOf reports whether a file is this server's receipt of the client's upload or withdrawal.
// Its signature is not verified: a file that looks like one of this round may be replaced by a
// valid one.
func receiptOf(d *wire.Description, client string, withdrawal bool) func([]byte) bool {
	return func(was []byte) bool {
		var r wire.Withdrawal // which has all fields of both that are read here
		return json.Unmarshal(was, &r) == nil && r.Server == d.ServerKey && r.Round == d.Round &&
			r.Client == client && (r.By != "") == withdrawal
	}
}

// free returns the file in the place of another, and an error where that may not replace it: its
// sha256 is none of these, and it is not its own. An empty file is free. The error names an upload
// of a private round and a report with noise as such, since budget was spent on them. The answer
// may be old when it is used: place asks again under the claim. A place with nothing there gives
// nil and no error.
func free(command string, f content, mine ...string) (was []byte, err error) {
	if _, err := os.Lstat(f.path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	was, err = regularfile.ReadOutput(f.path, federate.MaxBytes)
	if err != nil {
		return nil, usagef("%s: %w", command, err)
	}
	if len(was) == 0 || slices.Contains(mine, models.DigestBytes(was)) || f.own(was) {
		return was, nil
	}
	var r tally.Report
	kind := "there"
	if federate.IsRelease(was) {
		kind = "an upload of a private round"
	} else if json.Unmarshal(was, &r) == nil && r.Sigma > 0 {
		kind = "a report with noise"
	}
	return nil, usagef("%s: %s is %s already, another one than this or one that was changed: give "+
		"another output, or move it away", command, f.path, kind)
}

// aside is where a file with this sha256 is, whole on the disk, before it moves to its place:
// budget is spent between the two, so that none is where there is no space. The name follows from
// place and content: where a program is stopped, the ledger's digest finds it. A program that is
// stopped in between leaves a file that the ledger counts; the same command puts it in its place.
func aside(path, digest string) string { return beside(path, digest, heldExt) }

// heldExt ends the names of files aside.
const heldExt = ".held"

// beside is a hidden name in the folder of path: 64 bits of the sha256 of "BASE NAME/DIGEST", in
// hexadecimal, and an ending. 64 bits suffice, as names are compared within one folder.
func beside(path, digest, kind string) string {
	name := models.DigestBytes([]byte(filepath.Base(path) + "/" + digest))
	return filepath.Join(filepath.Dir(path), "."+name[:16]+kind)
}

// resolved is the file that a link stands for; a link stays where it is. A link that leads nowhere
// is its own file.
func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// claim takes an output for this process, until it is given back. The lock is a file beside the
// output, which its owner removes at the end. Under the lock the name must still be that of the
// locked file: the owner before may have removed it. It waits up to 20 s for another process
// ([atomicfile.Take]). A link that somebody put under the name is refused: O_EXCL follows none, so
// that no file is made where it leads.
func claim(path string) (release func(), err error) {
	name := beside(path, "", ".lock")
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			f.Close()
		} else if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		was, err := os.Lstat(name)
		if err == nil && !was.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no regular file: remove it", name)
		}
		lock, err := atomicfile.Take(name)
		if err == nil {
			if now, _ := os.Lstat(name); was != nil && os.SameFile(was, now) {
				return func() {
					os.Remove(name)
					lock.Close()
					os.Remove(name + atomicfile.LockFile) // which Windows locks in its place
				}, nil
			}
			lock.Close() // the one who had it before has removed the name
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// holding is files on their way to their places, of which the last is claimed. Files go through
// three steps: hold writes all of them aside, pay spends the budget, and place moves them. So no
// budget is spent on files that the disk has no space for, and none is in its place that was not
// paid for. A program that is killed at any step leaves files aside or in place, and none cut short
// under those names.
type holding struct {
	command string
	files   []content
	mine    []string
	made    []string // files aside that were not there before
	release func()
}

// hold writes files aside: all of them, or none. They may take the place of those with digests of
// mine. The claim on the last is one on all. It lasts until place or drop. After an error nothing
// of this call is left, and the claim is free.
func hold(command string, files []content, mine ...string) (*holding, error) {
	h := &holding{command: command, mine: mine}
	for _, f := range files {
		f.path = resolved(f.path)
		h.files, h.mine = append(h.files, f), append(h.mine, models.DigestBytes(f.data))
	}
	var err error
	last := h.files[len(files)-1].path
	if h.release, err = claim(last); err != nil {
		return nil, fmt.Errorf("%s: %s: it cannot be kept: %w", command, last, err)
	}
	if err := h.write(); err != nil {
		h.drop()
		return nil, err
	}
	return h, nil
}

// write checks the places of all files before it writes the first one aside. A file aside of an
// earlier, stopped program has the same name and content, and stays.
func (h *holding) write() error {
	for _, f := range h.files {
		if _, err := free(h.command, f, h.mine...); err != nil {
			return err
		}
	}
	for _, f := range h.files {
		if f.data == nil {
			continue
		}
		name := aside(f.path, models.DigestBytes(f.data))
		if _, err := os.Lstat(name); err != nil { // else it is of a program that was stopped
			h.made = append(h.made, name)
		}
		if err := h.writeAside(name, f); err != nil {
			return fmt.Errorf("%s: %s: it cannot be kept: %w", h.command, f.path, err)
		}
	}
	return nil
}

// writeAside writes a file aside, first under names that do not depend on its content: the noise of
// a program that is killed at it would stay under a name that never comes again. Under the claim
// nobody else writes there, and the next command that writes to this place removes the leavings.
// They are new files with drawn names. A link that somebody put in the way is thereby replaced, and
// its target is not written to.
func (h *holding) writeAside(name string, f content) error {
	half := beside(f.path, filepath.Base(h.files[len(h.files)-1].path), ".half")
	dir, prefix := filepath.Dir(half), "."+filepath.Base(half)+"."
	if err := atomicfile.RemoveStale(dir, prefix, 0); err != nil {
		return err
	}
	os.Remove(half) // of an earlier program
	to, err := os.CreateTemp(dir, prefix+"*.tmp")
	if err != nil {
		return err
	}
	_, err = to.Write(f.data)
	if err = errors.Join(err, to.Sync(), to.Close()); err == nil {
		err = os.Rename(to.Name(), name)
	}
	if err != nil {
		os.Remove(to.Name())
	}
	return err
}

// payment is the budget of a release. limit is the epsilon that may be spent on any image in all, 0
// for any. With again a release that the ledger has is spent once more. It is used for one call of
// pay.
type payment struct {
	ledger   privacy.Ledger
	spending privacy.Spending
	limit    float64
	again    bool
	log      io.Writer
}

// digestsOf are those of all files of releases.
func digestsOf(releases []privacy.Spending) (out []string) {
	for _, r := range releases {
		for _, f := range r.Files {
			out = append(out, f.Sha256)
		}
	}
	return out
}

// keeps returns the last of the same releases where it is to be given again: unless a redraw is
// asked for, or where its program was stopped before it stood in this place. Nobody has had that
// one yet, and to draw it again would spend a budget for nothing. most bounds the files that are
// read, in bytes. The last of all is the last one made.
func keeps(all []privacy.Spending, redraw bool, output string, most int64) *privacy.Spending {
	if len(all) == 0 {
		return nil
	}
	last := &all[len(all)-1]
	if !redraw || len(last.Files) > 0 && outputs.Same(last.Files[0].Path, output) &&
		unplaced(last, most) {
		return last
	}
	return nil
}

// givenAgain says that a release is that of before. One of images with copies was found by the
// images alone ([privacy.Ledger.FindAll]).
func givenAgain(log io.Writer, name string, kept *privacy.Spending, asked privacy.Spending) {
	fmt.Fprintf(log, "fmp-edge: %s was made on %s; it is given again, and nothing is spent\n", name,
		kept.Time.Format(time.RFC3339))
	if kept.Content != asked.Content {
		fmt.Fprintln(log, "fmp-edge: an earlier program made it of images with copies, and its "+
			"labels may differ from these: --redraw makes another, and spends its budget again")
	}
}

// unplaced reports whether a release is whole, and a file of it not in its place yet. A file that
// is in neither place makes it no whole release: the noise cannot be had again.
func unplaced(last *privacy.Spending, most int64) (stopped bool) {
	for _, f := range last.Files {
		place := resolved(f.Path)
		if holds(place, f.Sha256, most) != nil {
			continue
		}
		if holds(aside(place, f.Sha256), f.Sha256, most) == nil {
			return false
		}
		stopped = true
	}
	return stopped
}

// holds returns a file's data where they have the digest, else nil.
func holds(path, digest string, most int64) []byte {
	data, err := regularfile.ReadOutput(path, most)
	if err != nil || models.DigestBytes(data) != digest {
		return nil
	}
	return data
}

// pay holds the files of a release and spends its budget; where that fails the files go, unless the
// ledger counts them. replaced are earlier releases whose files these may take the place of. The
// order is: the names, the files aside, the ledger, leavings of others.
func (p *payment) pay(command string, files []content,
	replaced []privacy.Spending) (*holding, error) {
	// The ledger would come between the holding and the placing, in the place of the
	// release that it pays for.
	names := p.ledger.Files()
	for dir := filepath.Dir(p.ledger.Path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		names = append(names, dir) // made for the ledger, where it is not there
	}
	for _, f := range files {
		for _, taken := range names {
			if outputs.Same(f.path, taken) {
				return nil, usagef("%s: %s is to be written, and it is the ledger, its seal "+
					"or a folder of it (--ledger %s): give another output, or another ledger; "+
					"nothing was spent", command, f.path, p.ledger.Path)
			}
		}
	}
	h, err := hold(command, files, digestsOf(replaced)...)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was spent", err)
	}
	total, earlier, err := p.ledger.Spend(p.spending, p.limit, p.again)
	if err != nil {
		// The line may be written, or may not be known to be: then the files are kept.
		was, failed := p.ledger.Find(p.spending)
		if failed != nil || was != nil && slices.Equal(was.Files, p.spending.Files) {
			h.made = nil
		}
		h.drop()
		return nil, refused(command, err)
	}
	h.sweep(p.ledger)
	if earlier > 0 {
		fmt.Fprintf(p.log, "fmp-edge: with %d earlier releases epsilon %.4g has been spent on "+
			"the same images (%s)\n", earlier, total, p.ledger.Path)
	}
	return h, nil
}

// leftFor is how old files aside of places that are not claimed are before they are taken
// for those of a stopped program.
const leftFor = time.Hour

// sweep removes releases with noise that stopped programs left aside of these places, and that the
// ledger does not count. A file that cannot be read or removed is left to the next. Files beside
// other places than the last may be another process's, and are given an hour. It returns no error,
// as leavings do no harm but to space.
func (h *holding) sweep(ledger privacy.Ledger) {
	paid, err := ledger.Written()
	if err != nil {
		return
	}
	for i, f := range h.files {
		entries, _ := os.ReadDir(filepath.Dir(f.path))
		for _, e := range entries {
			st, err := e.Info()
			if filepath.Ext(e.Name()) != heldExt || err != nil ||
				i < len(h.files)-1 && time.Since(st.ModTime()) < leftFor {
				continue
			}
			path := filepath.Join(filepath.Dir(f.path), e.Name())
			data, err := regularfile.ReadOutput(path, federate.MaxBytes)
			if digest := models.DigestBytes(data); err == nil && path == aside(f.path, digest) &&
				!paid[digest] && !slices.Contains(h.mine, digest) {
				os.Remove(path)
			}
		}
	}
}

// place moves the files to their places, one after the other. It gives the claim back. An empty
// place is filled by a link, which fails where a file came meanwhile. A file that may be replaced
// is, by a rename. Where it fails midway the others stay aside, and the same command goes on.
func (h *holding) place() error {
	defer h.release()
	for _, f := range h.files {
		was, err := free(h.command, f, h.mine...)
		name := aside(f.path, models.DigestBytes(f.data))
		switch {
		case err != nil:
		case f.data == nil && was != nil:
			err = os.Remove(f.path)
		case f.data == nil:
		case was == nil:
			err = move(name, f.path)
		default:
			err = os.Rename(name, f.path)
		}
		// the same command in another process may have put it there meanwhile
		if err != nil && (f.data == nil || !bytes.Equal(was, f.data)) {
			return err
		}
	}
	return nil
}

// paid is an error of place after a budget was spent. It has %v and not %w: the cause's own kind
// would give the exit code of a refusal before spending.
func (h *holding) paid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: the budget is spent, and what it paid for is kept beside its place, "+
		"where the same command puts it: %v", h.command, err)
}

// drop removes the files aside that this command wrote, and gives the claim back. Files that were
// there before belong to a stopped program, and stay for it.
func (h *holding) drop() {
	for _, name := range h.made {
		os.Remove(name)
	}
	h.release()
}

// put writes files, unless one is to take the place of another that is not its own. It is for files
// without a budget.
func put(command string, files []content, mine ...string) error {
	h, err := hold(command, files, mine...)
	if err != nil {
		return err
	}
	return h.place()
}

// move gives a file its place, and replaces nothing there: by a link, where the file system has
// them. A link and a removal are two steps: a crash between them leaves both names of one file.
func move(from, to string) error {
	err := os.Link(from, to)
	if err == nil {
		os.Remove(from)
		return nil
	}
	if _, there := os.Lstat(to); errors.Is(there, fs.ErrNotExist) {
		return os.Rename(from, to)
	}
	return err
}

// paidFor returns a file of the ledger as it was written; nil where it is nowhere. One that a
// stopped program did not move to its place is moved now, unless another file is there. Contents
// are compared by digest, so that a changed file is none.
func paidFor(f privacy.Written, most int64) []byte {
	place := resolved(f.Path)
	name := aside(place, f.Sha256)
	for _, path := range []string{place, name} {
		data := holds(path, f.Sha256, most)
		if data == nil {
			continue
		}
		if path == place {
			os.Remove(name) // it was written to its place from there
		} else {
			move(name, place) //nolint:errcheck // it can be read where it is
		}
		return data
	}
	return nil
}

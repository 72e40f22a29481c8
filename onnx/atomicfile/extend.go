package atomicfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Extend appends lines to a file that grows and is never rewritten, of at most limit bytes,
// readable by its owner alone. It passes the file's whole lines to next, appends its result and
// syncs it, all under the file's lock, so that processes decide and append one after another. A
// last line without its end is an error, as its meaning would be forgotten, unless it is whole
// JSON: then it gets its end. Where next returns an error or nothing, the file stays as it is, and
// so it does where a write fails, or a call of then, which follow under the lock. Missing files and
// folders are made.
func Extend(path string, limit int, next func(lines []byte) ([]byte, error),
	then func() error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > int64(limit) {
		return fmt.Errorf("it is no regular file of at most %d bytes (%v)", limit, err)
	}
	lock, err := Take(path)
	if err != nil {
		return err
	}
	defer lock.Close()
	// The file may have grown before the lock was taken; a byte above the limit is enough to tell.
	content, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(content, '\n') + 1
	end := ""
	if last := content[whole:]; len(last) > 0 {
		if !json.Valid(last) {
			return fmt.Errorf("its last line, of %d bytes, has no end: a program was stopped while it "+
				"wrote, or the file was shortened; bring the whole file back, end that line if it "+
				"is whole, or remove that line alone if nothing came of it", len(last))
		}
		end = "\n"
	}
	more, err := next(append(content, end...))
	if err != nil || len(more) == 0 {
		return err
	}
	more = append([]byte(end), more...)
	if len(content)+len(more) > limit {
		return fmt.Errorf("it would have more than %d bytes; move it away when what it says is of no "+
			"use any more", limit)
	}
	if err := grow(f, int64(len(content)), more, then); err != nil {
		return err
	}
	// so that a new file's name survives a power cut, where folders can be synced
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
	return nil // all is synced: closing can fail no more than that
}

// growing is the file of [Extend].
type growing interface {
	io.WriterAt
	Sync() error
	Truncate(size int64) error
}

// grow writes more at the end of a file, syncs it and calls then. Where one of these fails it takes
// it back: a part of a line, as a full disk leaves it, would stop all who come after.
func grow(f growing, end int64, more []byte, then func() error) (err error) {
	_, err = f.WriteAt(more, end)
	if err == nil {
		err = f.Sync()
	}
	if err == nil && then != nil {
		err = then()
	}
	if err == nil {
		return nil
	}
	back := f.Truncate(end)
	if back == nil {
		back = f.Sync()
	}
	if back != nil {
		err = fmt.Errorf("%w; the part that was written could not be taken back: %w", err, back)
	}
	return err
}

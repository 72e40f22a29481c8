// Package regularfile opens files from outside. Anything but a regular file is refused at once: to
// open or read a named pipe, a terminal or a device can wait for ever, and none of them has a size
// that could be checked.
package regularfile

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// flags keep the opening of a named pipe from waiting for its writer; they mean nothing to a
// regular file.
const flags = os.O_RDONLY | nonblock

// Open is os.Open for regular files.
func Open(path string) (*os.File, error) { return checked(os.OpenFile(path, flags, 0)) }

// OpenIn is Open within a folder that names do not lead out of.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	return checked(root.OpenFile(name, flags, 0))
}

// ReadFile reads a regular file of at most limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return readAll(f, path, limit)
}

// ReadOutput is ReadFile of the file of an earlier run, also where it is to be overwritten
// ([Guard]).
func ReadOutput(path string, limit int64) ([]byte, error) {
	f, err := regular(os.OpenFile(path, flags, 0))
	if err != nil {
		return nil, err
	}
	return readAll(f, path, limit)
}

// readAll reads a file of at most limit bytes and closes it.
func readAll(f *os.File, path string, limit int64) ([]byte, error) {
	defer f.Close()
	var data bytes.Buffer
	if st, err := f.Stat(); err == nil && st.Size() <= limit {
		data.Grow(int(st.Size()) + bytes.MinRead) // a file is not to be copied as its buffer grows
	}
	// A byte above the limit tells a file that grew meanwhile, or whose size the system does not
	// give.
	_, err := data.ReadFrom(io.LimitReader(f, limit+1))
	if err == nil && int64(data.Len()) > limit {
		err = &fs.PathError{Op: "read", Path: path,
			Err: fmt.Errorf("too large; read are at most %d bytes", limit)}
	}
	if err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

// checked is regular for a file that is not to be overwritten.
func checked(f *os.File, err error) (*os.File, error) {
	if f, err = regular(f, err); err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || guarded(st) {
		f.Close()
		return nil, cmp.Or(err, error(&fs.PathError{Op: "open", Path: f.Name(), Err: ErrOutput}))
	}
	return f, nil
}

// regular closes a file that is not regular, or of which that cannot be told.
func regular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(),
			Err: fmt.Errorf("%s; want a regular file", kind(st.Mode()))}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// kind names a file that is not regular, for errors.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

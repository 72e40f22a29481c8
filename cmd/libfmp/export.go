package main

/*
#include <stdlib.h>
#define FMP_TYPES_ALONE
#include "fmp.h"
*/
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"fmp/cmd/buildinfo"
	"fmp/featurize/imagefile"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
)

// Texts that are read of a caller. A key file of identity is far below 64 KiB, and paths and names
// below 4 KiB.
const (
	maxText = 4096
	maxKey  = 1 << 16
)

// guarded runs a call, turns an error or a panic into a message, and returns the code of fmp.h. A
// panic that crossed into C would end the caller's program. message may be NULL. Fatal faults of
// the Go runtime, such as a lack of memory, still end the process.
func guarded(message **C.char, call func() error) (code C.int) {
	defer func() {
		if r := recover(); r != nil {
			code = failed(message, fmt.Errorf("internal error: %v; this is a fault of the "+
				"library, not of your input", r))
		}
	}()
	if err := call(); err != nil {
		return failed(message, err)
	}
	return C.FMP_OK
}

// failed hands an error's text to the caller, who frees it with fmp_free; NULL takes none. The text
// is in C's heap, with a 0 at its end.
func failed(message **C.char, err error) C.int {
	if message != nil {
		*message = C.CString(err.Error())
	}
	return C.FMP_ERROR
}

// text copies a caller's text; NULL is "". It reads maxText+1 bytes at most, and none behind the
// first 0. The caller's memory is not read again after the call.
func text(s *C.char) (string, error) {
	if s == nil {
		return "", nil
	}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(s)), maxText+1)
	for n := range maxText + 1 {
		if bytes[n] == 0 {
			return string(bytes[:n]), nil
		}
	}
	return "", fmt.Errorf("a text has more than %d bytes", maxText)
}

// copied copies a caller's bytes. C.GoBytes takes a C.int, which bounds them as well as most does.
// No memory of the caller's is kept, as Go may not hold pointers of C that are freed.
func copied(what string, data unsafe.Pointer, size C.size_t, most int) ([]byte, error) {
	if data == nil || size == 0 || uint64(size) > uint64(min(most, math.MaxInt32)) {
		return nil, fmt.Errorf("%s: %d bytes at %v; allowed are 1 to %d", what,
			uint64(size), data, most)
	}
	return C.GoBytes(data, C.int(size)), nil
}

// give gives bytes to the caller. They are of C's heap, and the caller frees them with fmp_free.
func give(to *C.fmp_buffer, data []byte) error {
	p := C.CBytes(data)
	if p == nil {
		return errors.New("no memory")
	}
	to.data, to.size = p, C.size_t(len(data))
	return nil
}

// imagesOf views a caller's images. The encoded images stay the caller's until they are read one by
// one; labels are copied. n is checked against maxImages before the array is viewed.
func imagesOf(c *C.fmp_images) (*images, error) {
	if c == nil || c.items == nil || c.n < 1 || c.n > maxImages {
		n := uint64(0)
		if c != nil {
			n = uint64(c.n)
		}
		return nil, fmt.Errorf("%d images; want 1 to %d, and where they are", n, maxImages)
	}
	items := unsafe.Slice(c.items, int(c.n))
	im := &images{n: len(items), read: func(i int) ([]byte, error) {
		return copied(fmt.Sprintf("image %d", i), items[i].data, items[i].size, imagefile.MaxBytes)
	}}
	// Labels are int32, one for each image.
	if c.labels != nil {
		im.labels = slices.Clone(unsafe.Slice((*int32)(unsafe.Pointer(c.labels)), len(items)))
	}
	return im, nil
}

// fmp_version returns a text that the caller frees with fmp_free.
//
//export fmp_version
func fmp_version() *C.char { return C.CString(buildinfo.Read().Version) }

// fmp_classifier_open reads the file within serde.MaxFileBytes. A notice beside it is heeded here
// alone, as bytes have no place beside which one could lie. After an error *out stays as it was.
//
//export fmp_classifier_open
func fmp_classifier_open(path *C.char, out *C.fmp_handle, message **C.char) C.int {
	return guarded(message, func() error {
		name, err := text(path)
		if err == nil && (name == "" || out == nil) {
			err = errors.New("classifier: give a path, and a place for the handle")
		}
		if err != nil {
			return err
		}
		data, err := regularfile.ReadFile(name, serde.MaxFileBytes)
		if err != nil {
			return fmt.Errorf("classifier: %w", err)
		}
		// A notice beside the file may say that the classifier is superseded.
		if err := client.Heed(name, "", ""); err != nil {
			return err
		}
		h, err := openClassifier(data)
		if err == nil {
			*out = C.fmp_handle(h)
		}
		return err
	})
}

// fmp_classifier_load is fmp_classifier_open for bytes in memory, which it copies.
//
//export fmp_classifier_load
func fmp_classifier_load(data unsafe.Pointer, size C.size_t, out *C.fmp_handle,
	message **C.char) C.int {
	return guarded(message,
		func() error { return load("classifier", data, size, out, openClassifier) })
}

// fmp_client_load opens a client graph whose extractor comes with the library, or has the approved
// digest (SHA-256, 64 hexadecimal digits); NULL approves none.
//
//export fmp_client_load
func fmp_client_load(data unsafe.Pointer, size C.size_t, approved *C.char, out *C.fmp_handle,
	message **C.char) C.int {
	return guarded(message, func() error {
		digest, err := text(approved)
		if err != nil {
			return err
		}
		return load("client graph", data, size, out,
			func(data []byte) (uint64, error) { return openClient(data, digest) })
	})
}

// load copies a caller's bytes and opens them; the handle is set where that succeeds. The caller
// may free its bytes once the call is over. open returns a handle, which the caller closes with
// fmp_close.
func load(what string, data unsafe.Pointer, size C.size_t, out *C.fmp_handle,
	open func([]byte) (uint64, error)) error {
	if out == nil {
		return fmt.Errorf("%s: no place for the handle", what)
	}
	b, err := copied(what, data, size, serde.MaxFileBytes)
	if err != nil {
		return err
	}
	h, err := open(b)
	if err == nil {
		*out = C.fmp_handle(h)
	}
	return err
}

// fmp_describe gives JSON, which the caller frees with fmp_free.
//
//export fmp_describe
func fmp_describe(handle C.fmp_handle, out, message **C.char) C.int {
	return guarded(message, func() error {
		if out == nil {
			return errors.New("describe: no place for the text")
		}
		d, err := describe(uint64(handle))
		if err != nil {
			return err
		}
		b, err := json.Marshal(d)
		if err == nil {
			*out = C.CString(string(b))
		}
		return err
	})
}

// rows are a caller's arrays of predictions. disagreement has n numbers, and the others n by the
// number of classes, image by image. A nil slice is of an output that the caller does not want.
type rows struct {
	probabilities, low, high, disagreement []float32
	set                                    []byte
}

// rowsOf views a caller's arrays for n images; NULL is nil, of outputs that are not wanted. The
// caller promises that the arrays have these sizes: C cannot tell them.
func rowsOf(out *C.fmp_predictions, d *described, n int) (*rows, error) {
	switch {
	case out == nil || out.probabilities == nil:
		return nil, errors.New("predict: no place for the probabilities")
	case int(out.classes) != len(d.Classes):
		return nil, fmt.Errorf("predict: places for %d classes; the classifier has %d",
			int(out.classes), len(d.Classes))
	case out.set != nil && !d.Sets, (out.low != nil || out.high != nil) && !d.Intervals:
		return nil, errors.New("predict: the classifier has no such prediction sets or " +
			"intervals; fmp_describe says what it has")
	}
	floats := func(p *C.float, n int) []float32 {
		if p == nil {
			return nil
		}
		return unsafe.Slice((*float32)(unsafe.Pointer(p)), n)
	}
	all := n * len(d.Classes)
	r := &rows{floats(out.probabilities, all), floats(out.low, all), floats(out.high, all),
		floats(out.disagreement, n), nil}
	if out.set != nil {
		r.set = unsafe.Slice((*byte)(unsafe.Pointer(out.set)), all)
	}
	return r, nil
}

// fmp_predict holds its own copies of the arrays until all images are classified: an error leaves
// the caller's as they were.
//
//export fmp_predict
func fmp_predict(handle C.fmp_handle, in *C.fmp_images, out *C.fmp_predictions,
	message **C.char) C.int {
	return guarded(message, func() error {
		im, err := imagesOf(in)
		if err != nil {
			return err
		}
		// Another handle than a classifier's is refused first. predict takes the lock again.
		m, err := findClassifier(uint64(handle))
		if err != nil {
			return err
		}
		// A handle that is closed between the two calls is told by the second.
		m.Unlock()
		d, err := describe(uint64(handle))
		if err != nil {
			return err
		}
		to, err := rowsOf(out, d, im.n)
		if err != nil {
			return err
		}
		c := len(d.Classes)
		// The caller's arrays are written once all predictions are made: an error leaves them as
		// they were.
		from := &rows{make([]float32, im.n*c), make([]float32, len(to.low)),
			make([]float32, len(to.high)), make([]float32, im.n), make([]byte, len(to.set))}
		err = predict(uint64(handle), im, func(i int, p *classify.Prediction) error {
			copy(from.probabilities[i*c:], p.Probabilities)
			from.disagreement[i] = p.MutualInformation
			if to.low != nil {
				copy(from.low[i*c:], p.Low)
			}
			if to.high != nil {
				copy(from.high[i*c:], p.High)
			}
			for k := 0; k < c && to.set != nil; k++ {
				if p.Set[k] {
					from.set[i*c+k] = 1
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		copy(to.probabilities, from.probabilities)
		copy(to.low, from.low)
		copy(to.high, from.high)
		copy(to.disagreement, from.disagreement)
		copy(to.set, from.set)
		return nil
	})
}

// made gives the caller the bytes that do makes of the images. how says whether the caller has
// stated the way. The bytes are made whole before the caller sees any. out is set on success alone.
func made(in *C.fmp_images, how bool, out *C.fmp_buffer, what string,
	do func(*images) ([]byte, error)) error {
	im, err := imagesOf(in)
	switch {
	case err != nil:
		return err
	case !how || out == nil:
		return fmt.Errorf("%s: say how, and give a place for what is made", what)
	}
	data, err := do(im)
	if err != nil {
		return err
	}
	return give(out, data)
}

// fmp_compress gives an upload, which the caller frees with fmp_free. The texts of how are copied.
//
//export fmp_compress
func fmp_compress(handle C.fmp_handle, in *C.fmp_images, how *C.fmp_upload, out *C.fmp_buffer,
	message **C.char) C.int {
	return guarded(message, func() error {
		return made(in, how != nil, out, "compress", func(im *images) ([]byte, error) {
			name, err := text(how.name)
			if err != nil {
				return nil, err
			}
			precision, err := text(how.precision)
			if err != nil {
				return nil, err
			}
			return compress(uint64(handle), im,
				&upload{name, uint64(how.round), precision, int(how.at_least)})
		})
	})
}

// fmp_evaluate gives signed counts in JSON, which the caller frees with fmp_free. The key is
// copied.
//
//export fmp_evaluate
func fmp_evaluate(handle C.fmp_handle, in *C.fmp_images, how *C.fmp_evaluation, out *C.fmp_buffer,
	message **C.char) C.int {
	return guarded(message, func() error {
		return made(in, how != nil, out, "evaluate", func(im *images) ([]byte, error) {
			key, err := copied("key", how.key.data, how.key.size, maxKey)
			if err != nil {
				return nil, err
			}
			server, err := text(how.server)
			if err != nil {
				return nil, err
			}
			return evaluate(uint64(handle), im, &evaluation{key, uint64(how.round), server,
				int(how.least), float64(how.epsilon), float64(how.delta)})
		})
	})
}

// fmp_close has no message: a handle that is not open does nothing.
//
//export fmp_close
func fmp_close(handle C.fmp_handle) {
	guarded(nil, func() error { drop(uint64(handle)); return nil })
}

// fmp_free frees memory that the library has allocated; NULL does nothing.
//
//export fmp_free
func fmp_free(p unsafe.Pointer) { C.free(p) }

package serde

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fmp/onnx"
	"fmp/onnx/internal/mapped"
	"fmp/onnx/onnxpb"
	"fmp/onnx/regularfile"
)

// dataElsewhere is the data_location of a tensor whose data lie in another file.
const dataElsewhere = 1

// mapFrom is the size of a file of tensor data from which on it is mapped and not read. Smaller
// files are read, and may be written to after loading.
const mapFrom = 16 << 20

// readExternal puts the data of tensors that lie in other files into them. The files must be in dir
// or below, symbolic links included, and hold as many bytes as shape and type say; no more is read.
// A large file is mapped: its tensors are left where they lie. It returns the places of the main
// graph's initializers, by name. The data are written to beside, in the order of their files'
// names, of offsets and of lengths. Files are closed before it returns; mapped bytes outlast their
// file.
func readExternal(p *onnxpb.ModelProto, dir string,
	beside io.Writer) (map[string]*onnx.External, error) {
	tensors := tensorsElsewhere(p)
	if len(tensors) == 0 {
		return nil, nil
	}
	// A Root refuses names and links that lead out of the folder.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the model's folder for its external data: %w", err)
	}
	defer root.Close()
	files := map[string]*dataFile{}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	// Tensors are told by their messages: one within a node may have an initializer's name.
	at := map[*onnxpb.TensorProto]*onnx.External{}
	for _, t := range tensors {
		e, err := readTensorData(root, files, t)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: external data: %w", t.Name, err)
		}
		e.Folder = dir
		at[t] = e
	}
	// Messages come in an order that differs from build to build; tensors of one place are the same.
	slices.SortFunc(tensors, func(s, t *onnxpb.TensorProto) int {
		return cmp.Or(cmp.Compare(at[s].Location, at[t].Location), cmp.Compare(at[s].Offset, at[t].Offset),
			cmp.Compare(len(s.RawData), len(t.RawData)))
	})
	for _, t := range tensors {
		beside.Write(t.RawData)
	}
	places := map[string]*onnx.External{}
	for _, t := range p.Graph.GetInitializer() {
		if at[t] != nil {
			places[t.Name] = at[t]
		}
	}
	return places, nil
}

// tensorsElsewhere lists the tensors whose data lie in other files, wherever they stand in a
// message.
func tensorsElsewhere(p *onnxpb.ModelProto) (all []*onnxpb.TensorProto) {
	eachMessage(p.ProtoReflect(), func(m protoreflect.Message) bool {
		if t, ok := m.Interface().(*onnxpb.TensorProto); ok && t.DataLocation == dataElsewhere {
			all = append(all, t)
		}
		return true
	})
	return all
}

// eachMessage calls a function with a message and those within it, until it returns false; it
// reports whether it never did. The decoder bounded their depth.
func eachMessage(m protoreflect.Message, do func(m protoreflect.Message) bool) bool {
	ok := do(m)
	if !ok {
		return false
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := 0; ok && i < v.List().Len(); i++ {
				ok = eachMessage(v.List().Get(i).Message(), do)
			}
		default:
			ok = eachMessage(v.Message(), do)
		}
		return ok
	})
	return ok
}

// Externals returns the names of the files that hold data of a model, relative to its folder,
// sorted; each stands once. Data other than a message with a graph have none; such a message that
// cannot be decoded is an error, as another reader might decode it.
func Externals(data []byte) ([]string, error) {
	p, err := decode(data, maxParts)
	if err != nil {
		if !hasGraph(data) {
			err = nil
		}
		return nil, err
	}
	var names []string
	for _, t := range tensorsElsewhere(p) {
		e, _, err := place(t)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: external data: %w", t.Name, err)
		}
		names = append(names, strings.TrimPrefix(e.Location, "./"))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// hasGraph reports whether data are fields of protobuf with one that can be a model's graph.
func hasGraph(data []byte) (has bool) {
	return eachField(data, func(num protowire.Number, kind protowire.Type, _, _ []byte) {
		has = has || num == fieldGraph && kind == protowire.BytesType
	}) && has
}

// Tensors may share bytes of a file, as tied weights do, but all together read no more than this
// many times its size. Without it a small file could be read into each of a million tensors.
const maxShared = 4

// dataFile is a file of external data, its size, how much was read from it, and its bytes where it
// is mapped.
type dataFile struct {
	*os.File
	size, read int64
	mapped     []byte
}

// openData opens a regular file below root. Where mapping fails the file is read.
func openData(root *os.Root, location string) (*dataFile, error) {
	f, err := regularfile.OpenIn(root, filepath.FromSlash(location))
	if err != nil {
		return nil, fmt.Errorf("file %.200q: %w; it must lie in the model's folder", location, err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("file %.200q: %w", location, err)
	}
	d := &dataFile{File: f, size: st.Size()}
	if d.size >= mapFrom && d.size <= math.MaxInt {
		path := filepath.Join(root.Name(), filepath.FromSlash(location))
		if d.mapped, err = mapped.Open(f, path); err != nil || int64(len(d.mapped)) != d.size {
			d.mapped = nil // it is read
		}
	}
	return d, nil
}

// bytes are n bytes from offset on. Mapped bytes have no spare capacity, so that an append copies
// them.
func (f *dataFile) bytes(offset, n int64) ([]byte, error) {
	if f.mapped != nil {
		return f.mapped[offset : offset+n : offset+n], nil
	}
	raw := make([]byte, n)
	_, err := io.ReadFull(io.NewSectionReader(f, offset, n), raw)
	return raw, err
}

// place is where a tensor's entries say that its data lie; length is -1 where they do not say it.
// Other entries, as a checksum, are not looked at. Of a key that is given twice the later one
// counts.
func place(t *onnxpb.TensorProto) (e *onnx.External, length int64, err error) {
	var location string
	offset := int64(0)
	length = -1
	for _, kv := range t.ExternalData {
		var err error
		switch kv.Key {
		case "location":
			location = kv.Value
		case "offset":
			offset, err = strconv.ParseInt(kv.Value, 10, 64)
		case "length":
			length, err = strconv.ParseInt(kv.Value, 10, 64)
		}
		if err != nil || offset < 0 {
			return nil, 0, fmt.Errorf("%s is %.40q; a number of bytes is allowed", kv.Key, kv.Value)
		}
	}
	if location == "" {
		return nil, 0, fmt.Errorf("it names no file")
	}
	if !filepath.IsLocal(filepath.FromSlash(location)) {
		return nil, 0, fmt.Errorf("file %.200q lies outside the model's folder; move it beside the "+
			"model and save the model with a relative name", location)
	}
	return &onnx.External{Location: location, Offset: offset}, length, nil
}

// readTensorData compares all sizes before memory is taken; the tensor then looks as if it held its
// data. files holds those opened so far by location, so that each is opened once.
func readTensorData(root *os.Root, files map[string]*dataFile,
	t *onnxpb.TensorProto) (*onnx.External, error) {
	e, length, err := place(t)
	if err != nil {
		return nil, err
	}
	location, offset := e.Location, e.Offset
	d := onnx.DType(t.DataType)
	if d.Size() == 0 {
		return nil, fmt.Errorf("element type %v cannot lie in another file", d)
	}
	shape, n, err := sizes(t)
	if err != nil {
		return nil, err
	}
	want := d.RawBytes(n)
	// A length is a statement to be checked; sizes follow from shape and type.
	if length >= 0 && length != want {
		return nil, fmt.Errorf("length %d; shape %v of %v needs %d bytes", length, shape, d, want)
	}
	f := files[location]
	if f == nil {
		if f, err = openData(root, location); err != nil {
			return nil, err
		}
		files[location] = f
	}
	// The size is known before memory is taken. No difference overflows, as neither size nor offset
	// is negative.
	if f.size-offset < want {
		return nil, fmt.Errorf("file %q of %d bytes does not hold %d bytes from %d on; was it cut short?",
			location, f.size, want, offset)
	}
	if f.read += want; f.read > maxShared*f.size {
		return nil, fmt.Errorf("the tensors read file %q of %d bytes more than %d times over", location,
			f.size, maxShared)
	}
	if want > math.MaxInt {
		return nil, fmt.Errorf("%d bytes in one tensor are more than this machine can address", want)
	}
	raw, err := f.bytes(offset, want)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", location, err)
	}
	t.RawData, t.DataLocation, t.ExternalData = raw, 0, nil
	return e, nil
}

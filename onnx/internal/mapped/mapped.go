// Package mapped maps files of tensor data into memory, and tells where one was written to since:
// its tensors then have other numbers.
package mapped

import (
	"fmt"
	"os"
	"reflect"
	"sync"

	"fmp/onnx"
)

// File is a mapped file.
type File struct {
	file *os.File // open beside the one that was given: another may take the place of its name
	// was has the size and the time of writing at the mapping.
	was  os.FileInfo
	data []byte
}

// lock guards files, which grows with every version of a file and never shrinks.
var (
	lock  sync.Mutex
	files []*File
)

// Open returns the bytes of a file, without reading them. The mapping lasts as long as the process,
// since tensors share it: opened again, a file that stays as it is has the same.
func Open(f *os.File, path string) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	for _, m := range files {
		if os.SameFile(m.was, st) && !m.written(st) {
			return m.data, nil
		}
	}
	own, data, err := mapFile(f, path, st.Size())
	if err != nil {
		return nil, err
	}
	files = append(files, &File{own, st, data})
	return data, nil
}

// written goes by size and time: a write of the same size within the clock's step escapes it.
func (f *File) written(now os.FileInfo) bool {
	return now.Size() != f.was.Size() || !now.ModTime().Equal(f.was.ModTime())
}

// Unchanged returns an error where the file was written to, by whichever name. One that another
// took the place of, or that was removed, stays mapped as it was.
func (f *File) Unchanged() error {
	if now, err := f.file.Stat(); err == nil && f.written(now) {
		return fmt.Errorf("file %s was written to while its weights are in use: load the model again, and "+
			"replace files by renaming", f.file.Name())
	}
	return nil
}

// Of lists the files that initializers of a graph lie in, those of graphs within included.
func Of(g *onnx.Graph) (of []*File) {
	lock.Lock()
	defer lock.Unlock()
	for _, f := range files {
		if f.has(g) {
			of = append(of, f)
		}
	}
	return of
}

// has compares addresses, as a tensor that shares the mapping has its elements within it.
func (f *File) has(g *onnx.Graph) bool {
	first := reflect.ValueOf(f.data).Pointer()
	for _, t := range g.Initializers {
		if v := reflect.ValueOf(t.Data); v.Kind() == reflect.Slice && v.Pointer() >= first &&
			v.Pointer() < first+uintptr(len(f.data)) {
			return true
		}
	}
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs() {
			if f.has(s) {
				return true
			}
		}
	}
	return false
}

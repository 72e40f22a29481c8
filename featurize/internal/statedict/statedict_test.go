package statedict

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// file writes a state dictionary as torch.save does: tensors "w" [2, 3] and "b" [3] of one storage
// of 9, and a counter.
func file(edit func(object string) string) []byte {
	u := func(s string) string {
		return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
	}
	storage := func(kind, key string, n byte) string {
		return "(" + u("storage") + "ctorch\n" + kind + "\n" + u(key) + u("cpu") + "K" +
			string(rune(n)) + "NtQ"
	}
	tensor := func(storage, offset, shape, strides string) string {
		return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + offset + "(" + shape +
			"t(" + strides + "t\x89ccollections\nOrderedDict\n)RtR"
	}
	object := "ccollections\nOrderedDict\n)Rq\x00(" +
		u("w") + tensor(storage("FloatStorage", "a", 9), "K\x00", "K\x02K\x03", "K\x03K\x01") +
		u("b") + tensor(storage("FloatStorage", "a", 9), "K\x06", "K\x03", "K\x01") +
		u("n") + tensor(storage("LongStorage", "c", 1), "K\x00", "", "") + "u}" + u("_metadata") + "Nsb"
	if edit != nil {
		object = edit(object)
	}
	var b bytes.Buffer
	for _, p := range []string{"\x8a\x0a" + magic, "M\xe9\x03", "}(" + u("little_endian") + "\x88u",
		object, "](" + u("a") + u("c") + "e"} {
		b.WriteString("\x80\x02" + p + ".")
	}
	b.Write(binary.LittleEndian.AppendUint64(nil, 9))
	for i := range 9 {
		binary.Write(&b, binary.LittleEndian, float32(i))
	}
	b.Write(binary.LittleEndian.AppendUint64(nil, 1))
	b.Write(make([]byte, 8))
	return b.Bytes()
}

func TestRead(t *testing.T) {
	got := must.Get(Read(file(nil)))(t)
	w, b := got["w"], got["b"]
	if len(got) != 2 || w == nil || b == nil || !slices.Equal(w.Shape, []int{2, 3}) ||
		!slices.Equal(w.F32(), []float32{0, 1, 2, 3, 4, 5}) ||
		!slices.Equal(b.F32(), []float32{6, 7, 8}) {
		t.Errorf("read %v", got)
	}
}

// TestStrides: a tensor whose columns lie one after another is read row by row.
func TestStrides(t *testing.T) {
	got, err := Read(file(func(s string) string { return strings.Replace(s, "K\x03K\x01", "K\x01K\x02", 1) }))
	if err != nil || !slices.Equal(got["w"].F32(), []float32{0, 2, 4, 1, 3, 5}) {
		t.Errorf("%v, %v", got["w"], err)
	}
}

// TestRefused: a pickle that would run something in Python, or says what is not so, is refused with
// its reason.
func TestRefused(t *testing.T) {
	swap := func(old, new string) []byte {
		return file(func(s string) string {
			if !strings.Contains(s, old) {
				t.Fatalf("no %q in the file", old)
			}
			return strings.Replace(s, old, new, 1)
		})
	}
	whole := file(nil)
	for want, data := range map[string][]byte{
		`names "os system"`: swap("ccollections\nOrderedDict\n)R",
			"cos\nsystem\n)R"),
		`names "builtins eval"`: swap("ctorch._utils\n_rebuild_tensor_v2\n",
			"cbuiltins\neval\n"),
		"is none that tensors need": swap("q\x00(", "i(("),
		`call of "torch FloatStorage"`: swap("ccollections\nOrderedDict\n)R",
			"ctorch\nFloatStorage\n)R"),
		"from element 0 to 13 of a storage of 9": swap("K\x03K\x01", "K\x09K\x02"),
		"larger than its storage":                swap("K\x02K\x03", "K\x09K\x03"),
		"from element 7 to 9 of a storage of 9":  swap("K\x06", "K\x07"),
		"described twice":                        swap("cpuK\x09", "cpuK\x08"),
		"the file is cut off":                    whole[:len(whole)-9],
		"1 bytes follow":                         append(slices.Clone(whole), 0),
		"magic number":                           []byte("\x80\x02K\x01."),
		"nothing was kept":                       swap("q\x00", "h\x07"),
		"holds a string; want":                   file(func(string) string { return "X\x01\x00\x00\x00a" }),
		"a key":                                  file(func(string) string { return "}K\x01Ns" }),
	} {
		if want == "a key" {
			want = "key is a int"
		}
		must.Fail(Read(data))(t, want)
	}
}

// TestNoEnd: a value that has no end in print is not printed: a tuple of itself doubled 60 times,
// called as a function.
func TestNoEnd(t *testing.T) {
	bomb := ")" + strings.Repeat("q\x00h\x00\x86", 60)
	began := time.Now()
	for _, object := range []string{bomb + bomb + "R", bomb, "(" + bomb + "tQ", "}(" + bomb + "Nu"} {
		if _, err := Read(file(func(string) string { return object })); err == nil ||
			len(err.Error()) > 400 {
			t.Errorf("%v", err)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%v", took)
	}
}

// FuzzRead: whatever the bytes, tensors or an error, in memory of the order of the file.
func FuzzRead(f *testing.F) {
	f.Add(file(nil))
	f.Add(file(func(s string) string { return strings.Replace(s, "K\x06", "K\x07", 1) }))
	f.Add([]byte("\x80\x02]q\x00(h\x00e."))
	f.Fuzz(func(t *testing.T, data []byte) {
		alloctest.AtMost(t, 400*len(data), func() {
			tensors, err := Read(data)
			for name, v := range tensors {
				n := 1
				for _, d := range v.Shape {
					n *= d
				}
				if err != nil || len(v.F32()) != n {
					t.Errorf("%s is %v, %v", name, v, err)
				}
			}
		})
	})
}

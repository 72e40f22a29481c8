package npy

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// The files in testdata were written by NumPy: arange(24).reshape(2, 3, 4) in several types and
// orders.
func TestLoadNumPyFiles(t *testing.T) {
	f32, f16, i64, even := onnx.ZerosF32(2, 3, 4), make([]uint16, 24), make([]int64, 24),
		make([]bool, 24)
	for i := range 24 {
		f32.F32()[i], i64[i], even[i] = float32(i), int64(i), i%2 == 0
		// float16 of a small whole number: its leading bit shifted out, the exponent before it
		if i > 0 {
			e := int(math.Log2(float64(i)))
			f16[i] = uint16((e+15)<<10 | (i<<(10-e))&0x3ff)
		}
	}
	for name, want := range map[string]*onnx.Tensor{
		"f4":         f32,
		"f4_fortran": f32,
		"i8_big":     onnx.NewTensor(i64, 2, 3, 4),
		"b1":         onnx.NewTensor(even, 2, 3, 4),
		"f2":         {DType: onnx.Float16, Shape: []int{2, 3, 4}, Data: f16},
		"scalar":     onnx.Scalar(3.5),
		"text":       onnx.Vector("a", "längs", ""),
		"empty":      onnx.NewTensor([]uint8{}, 0, 3),
	} {
		got, err := Load(filepath.Join("testdata", name+".npy"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestWriteThenRead(t *testing.T) {
	for _, want := range []*onnx.Tensor{
		onnx.Vector[float32](1, float32(math.Inf(-1))), onnx.Vector[float64](1.5),
		onnx.Vector[int8](-1),
		onnx.Vector[int16](-2),
		onnx.Vector[int32](-3),
		onnx.Vector[int64](-1 << 60), onnx.Vector[uint8](255), onnx.Vector[uint16](65535),
		onnx.Vector[uint32](1 << 31),
		onnx.Vector[uint64](1 << 63),
		onnx.Vector(true, false), onnx.Vector("x", "äöü", ""), onnx.Scalar[float32](2),
		onnx.ZerosF32(2, 0, 3), onnx.ZerosF32(1, 2, 3, 4, 5),
		{DType: onnx.Float16, Shape: []int{2}, Data: []uint16{1, 0x7c00}},
	} {
		var buf bytes.Buffer
		must.Do(t, Write(&buf, want))
		if n := buf.Len(); bytes.IndexByte(buf.Bytes(), '\n')%64 != 63 {
			t.Errorf("%v: the elements of %d bytes do not start at a multiple of 64", want, n)
		}
		got := must.Get(Read(&buf))(t)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	var buf bytes.Buffer
	must.Do(t, Write(&buf, &onnx.Tensor{DType: onnx.BFloat16, Shape: []int{2},
		Data: []uint16{0x3f80, 0xc000}}))
	got := must.Get(Read(&buf))(t)
	if d := cmp.Diff(onnx.Vector[float32](1, -2), got); d != "" {
		t.Errorf("bfloat16 (-want +got):\n%s", d)
	}
}

// file puts a header before some bytes.
func file(dict string, data string) string {
	return magic + "\x01\x00" + string([]byte{byte(len(dict)), byte(len(dict) >> 8)}) + dict + data
}

// TestHolds: Write takes tensors of the types that Holds names, and refuses others.
func TestHolds(t *testing.T) {
	for d := onnx.Float32; d <= onnx.Float8E8M0; d++ {
		x, err := onnx.Zeros(d, 2)
		if err != nil {
			continue
		}
		if err := Write(io.Discard, x); (err == nil) != Holds(d) {
			t.Errorf("%v: Holds is %v, and writing gives %v", d, Holds(d), err)
		}
	}
}

func TestReadErrors(t *testing.T) {
	good := "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", "not a .npy file"},
		{"wrong magic", "\x93NUMPZ\x01\x00aaaa", "not a .npy file"},
		{"unknown version", magic + "\x09\x00", "version 9"},
		{"header cut", magic + "\x01\x00\x10\x00{", "header cut short"},
		{"huge header", magic + "\x02\x00\xff\xff\xff\xff", "allowed are 65536"},
		{"cut short", file(good, "1234567"), "needs 8 bytes and 7 are there"},
		{"bytes left", file(good, "123456789"), "there are more"},
		{"negative", file(strings.Replace(good, "(2,)", "(-2,)", 1), ""), "not a tuple"},
		{"too many elements", file(strings.Replace(good, "(2,)", "(65536, 65536)", 1), ""), "more than"},
		{"not a tuple", file(strings.Replace(good, "(2,)", "2", 1), ""), `no "("`},
		{"missing key", file("{'descr': '<f4', 'shape': (2,)}", ""), "missing"},
		{"key twice", file("{'descr': '<f4', 'descr': '<f4'}", ""), "twice"},
		{"unknown key", file("{'descr': '<f4', 'x': 1}", ""), "not known"},
		{"pickled objects", file(strings.Replace(good, "<f4", "|O", 1), ""), "no counterpart"},
		{"many empty texts", file("{'descr': '<U0', 'fortran_order': False, 'shape': (2000000000,), }\n",
			""), "allowed are"},
		{"not a character", file("{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }\n",
			"\xff\xff\xff\xff"), "no character"},
	} {
		must.Fail(Read(strings.NewReader(c.content)))(t, c.want, c.name)
	}
	for _, name := range []string{"complex.npy", "record.npy", "gone.npy", ""} {
		must.Fail(Load(filepath.Join("testdata", name)))(t, "", name)
	}
}

// A header may claim what it likes: memory follows the bytes that are there.
func TestReadTakesNoMoreThanThereIs(t *testing.T) {
	content := file("{'descr': '<f8', 'fortran_order': False, 'shape': (2000000000,), }\n", "12345678")
	alloctest.AtMost(t, 0, func() { must.Fail(Read(strings.NewReader(content)))(t, "") })
}

// FuzzRead: whatever is read can be written and read again, and takes at most 24 bytes of memory
// for each byte of the file and 16 for each of 65,536 empty texts.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.npy")
	for _, p := range files {
		b := must.Get(os.ReadFile(p))(f)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var x *onnx.Tensor
		var err error
		alloctest.AtMost(t, 24*len(b)+16*maxText, func() { x, err = Read(bytes.NewReader(b)) })
		if err != nil {
			return
		}
		var buf bytes.Buffer
		if err := Write(&buf, x); err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		y, err := Read(&buf)
		if err != nil {
			t.Fatalf("written but not read: %v", err)
		}
		var a, c bytes.Buffer
		if Write(&a, x) != nil || Write(&c, y) != nil || !bytes.Equal(a.Bytes(), c.Bytes()) {
			t.Errorf("%v changed to %v", x, y)
		}
	})
}

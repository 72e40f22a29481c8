package must_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"fmp/onnx/must"
)

// fake is a test of which is known how it ended.
type fake struct {
	testing.TB
	ended any
}

func (f *fake) Helper()           {}
func (f *fake) Fatal(args ...any) { f.ended = args[0] }

func (f *fake) Fatalf(string, ...any) { f.ended = "failed" }

func (f *fake) Errorf(format string, args ...any) { f.ended = fmt.Sprintf(format, args...) }

func (f *fake) Skip(...any) { f.ended = "skipped" }

// TestHave: what is missing fails a test in continuous integration, and is skipped elsewhere.
func TestHave(t *testing.T) {
	for ci, want := range map[string]string{"": "skipped", "1": "failed"} {
		t.Setenv("CI", ci)
		var f fake
		must.Have(&f, nil)
		if f.ended != nil {
			t.Errorf("CI %q: nothing is missing, and the test was %v", ci, f.ended)
		}
		if must.Have(&f, errors.New("no such program")); f.ended != want {
			t.Errorf("CI %q: the test was %v, want %s", ci, f.ended, want)
		}
	}
}

// TestMust: values come through, and an error ends the test.
func TestMust(t *testing.T) {
	if n := must.Get(strconv.Atoi("7"))(t); n != 7 {
		t.Errorf("7 is %d", n)
	}
	if v, w := must.Get2("a", 3, error(nil))(t); v != "a" || w != 3 {
		t.Errorf("a and 3 are %q and %d", v, w)
	}
	must.Do(t, nil)
	for name, end := range map[string]func(f *fake){
		"Do":   func(f *fake) { must.Do(f, os.ErrNotExist) },
		"Get":  func(f *fake) { must.Get(0, os.ErrNotExist)(f) },
		"Get2": func(f *fake) { must.Get2(0, 0, os.ErrNotExist)(f) },
	} {
		f := &fake{}
		if end(f); f.ended == nil || !errors.Is(f.ended.(error), os.ErrNotExist) {
			t.Errorf("%s ends the test with %v", name, f.ended)
		}
	}
}

// TestFail: an error that says so is well, and another or none is reported with the case.
func TestFail(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
		says any
	}{
		{errors.New("no such file"), "such", nil}, {errors.New("no such file"), "", nil},
		{nil, "", `a 7 error is <nil>; want one with ""`},
		{errors.New("closed"), "such", `a 7 error is closed; want one with "such"`},
	} {
		f := &fake{}
		if must.Fail(3, tc.err)(f, tc.want, "a", 7); f.ended != tc.says {
			t.Errorf("%v: reported is %v, want %v", tc.err, f.ended, tc.says)
		}
	}
}

package try_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"fmp/onnx/internal/try"
	"fmp/onnx/must"
)

// TestCatch: work ends at its first error, without one at its end, and other panics go on.
func TestCatch(t *testing.T) {
	none := errors.New("none")
	work := func(text string) (n int, err error) {
		defer try.Catch(&err)
		if text == "" {
			try.Fail("a number: %w", none)
		}
		if text == "panic" {
			panic(text)
		}
		a, b := try.Get2(1, 2, nil)
		return a + b + try.Get(strconv.Atoi(text)), nil
	}
	if n, err := work("4"); n != 7 || err != nil {
		t.Errorf("work is %d, %v", n, err)
	}
	if _, err := work("four"); !errors.Is(err, strconv.ErrSyntax) {
		t.Errorf("the error is %v", err)
	}
	if _, err := work(""); !errors.Is(err, none) {
		t.Errorf("the error is %v", err)
	}
	for want, step := range map[string]func(){
		"of panic": func() { panic("panic") }, "none": func() { try.Do(none) },
	} {
		err := func() (err error) {
			defer try.Catch(&err, func(r any) error { return fmt.Errorf("of %v", r) })
			step()
			return nil
		}()
		must.Fail(err)(t, want, "")
	}
	defer func() {
		if r := recover(); r != "panic" {
			t.Errorf("the panic is %v", r)
		}
	}()
	_, _ = work("panic")
}

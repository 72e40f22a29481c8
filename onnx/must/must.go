// Package must ends a test at an error, or where this machine lacks a program that it wants, and
// faults one that lacks an error.
package must

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Have ends the test where err says that something is missing: continuous integration ($CI)
// installs all that tests want, and fails; elsewhere the test is skipped and says why.
func Have(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("continuous integration leaves no test out: %v", err)
	default:
		t.Skip(err)
	}
}

// Do ends the test at an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get takes the results of a call. The function that it returns gives the value, or ends the test
// at the error: must.Get(os.ReadFile(path))(t).
func Get[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Get2 is [Get] for calls of two values.
func Get2[T, U any](v T, w U, err error) func(t testing.TB) (T, U) {
	return func(t testing.TB) (T, U) {
		t.Helper()
		Do(t, err)
		return v, w
	}
}

// Fail takes the results of a call that should end in an error, which is the last of them. The
// function that it returns reports where there is none, or one that does not say want; the test
// goes on. Words that tell the case may follow: must.Fail(os.Open(path))(t, "no such file", path).
func Fail(results ...any) func(t testing.TB, want string, about ...any) {
	return func(t testing.TB, want string, about ...any) {
		t.Helper()
		err, _ := results[len(results)-1].(error)
		if err == nil || !strings.Contains(err.Error(), want) {
			is := strings.TrimSpace(fmt.Sprintln(append(about, "error is")...))
			t.Errorf("%s %v; want one with %q", is, err, want)
		}
	}
}

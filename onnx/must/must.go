// Package must ends a test at an error, or where this machine lacks a program that it wants.
package must

import (
	"os"
	"testing"
)

// Have ends the test where err says that something is missing: continuous integration ($CI) installs
// all that tests want, and fails; elsewhere the test is skipped and says why.
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

// Get takes the results of a call. The function that it returns gives the value, or ends the test at
// the error: must.Get(os.ReadFile(path))(t).
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

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	got, err := Table([]byte("# a book\na FuzzX: fuzz: elapsed: 10m0s, execs: 1000 (1/sec), new interesting: 1 (total: 2)\na FuzzX: found: " +
		"a panic\n" +
		"b/c FuzzY: fuzz: elapsed: 1h30m3s, execs: 1234567 (1/sec)\na FuzzX: fuzz: elapsed: 30s, execs: 1 (0/sec)\nd FuzzZ: found: nothing\n" +
		"d FuzzZ: fuzz: elapsed: 3s, gathering baseline coverage: 136/231 completed\n"))
	want := "| target | minutes | executions | found and mended |\n| --- | ---: | ---: | --- |\n| `b/c` FuzzY | 90.0 | 1,234,567 | none |\n" +
		"| `a` FuzzX | 10.5 | 1,001 | a panic |\n| `d` FuzzZ | 0.1 | 136 | nothing |\n"
	if err != nil || got != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"a FuzzX", "a FuzzX: 10 minutes", "a FuzzX: fuzz: elapsed: long, execs: 1 (0/sec)"} {
		if got, err := Table([]byte(bad)); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

// TestPageHasTheBook: the table on the page is the book's.
func TestPageHasTheBook(t *testing.T) {
	book, err := os.ReadFile("book.txt")
	if err != nil {
		t.Fatal(err)
	}
	table, err := Table(book)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../testing.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), begin+table+end) {
		t.Error("docs/testing.md has not the book's table: make docs, or go run ./docs/fuzz -book docs/fuzz/book.txt -table docs/testing.md")
	}
}

// TestInPart: the module and its parsers lead the fuzzer, and what they link besides does not.
func TestInPart(t *testing.T) {
	for pkg, want := range map[string]bool{"fmp/onnx/npy": true, "fmpx": false, "encoding/json": true, "go.yaml.in/yaml/v3": true,
		"net/http":                false,
		"golang.org/x/image/tiff": true, "golang.org/x/image/font": false, "github.com/nats-io/nats-server/v2/server": false} {
		args := []string{"-o", "x.a", "-p", pkg, "-d=libfuzzer", "x.go"}
		if got := inPart(args); slices.Contains(got, "-d=libfuzzer") != want || got[len(got)-1] != "x.go" {
			t.Errorf("%s is compiled with %q; instrumented: %v", pkg, got, want)
		}
	}
}

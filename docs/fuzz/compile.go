package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// instrumented are the packages whose branches lead the fuzzer: the module's own, and parsers that
// its targets hand inputs to. The go tool instruments whatever a target links, and after each input
// the fuzzer goes through a counter of every branch; of 250,000 such branches behind a server's
// target nine in ten are of TLS, NATS, metrics and numerics, which read none of it.
var instrumented = regexp.MustCompile(
	`^(fmp|archive|compress|encoding|image|go\.yaml\.in/yaml|google\.golang\.org/protobuf|` +
		`golang\.org/x/image/(bmp|ccitt|riff|tiff|vp8|vp8l|webp)|github\.com/` +
		`(go-viper|owulveryck/onnx-go|parquet-go|pelletier/go-toml|spf13/viper))(/|$)`)

// compileCommand is the first argument with which the go tool, told so by -toolexec, runs this
// program in place of its own tools.
const compileCommand = "compile"

// compile runs a tool of the go tool's with its arguments; the compiler without instrumentation
// where a package wants none.
func compile(command []string) int {
	tool, args := command[0], command[1:]
	c := exec.Command(tool, args...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	var err error
	switch name := filepath.Base(tool); {
	case name != "compile" && name != "compile.exe":
		err = c.Run()
	case slices.Equal(args, []string{"-V=full"}):
		// The go tool's cache holds results by this answer: packages compiled here must not pass
		// for the compiler's own.
		c.Stdout = nil
		var version []byte
		if version, err = c.Output(); err == nil {
			fmt.Printf("%s+in-part\n", bytes.TrimSpace(version))
		}
	default:
		c.Args = append(c.Args[:1], inPart(args)...)
		err = c.Run()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		return 1
	}
	return 0
}

// inPart takes the compiler's flag for instrumentation away where the package is not among those
// instrumented.
func inPart(args []string) []string {
	if i := slices.Index(args, "-p"); i >= 0 && i+1 < len(args) &&
		instrumented.MatchString(args[i+1]) {
		return args
	}
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-d=libfuzzer" })
}

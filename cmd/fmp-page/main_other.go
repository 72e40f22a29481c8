//go:build !js

package main

import (
	"fmt"
	"os"
)

// main says where the program runs, for a person who starts it outside a browser. Exit code 2 is
// that of wrong arguments.
func main() {
	fmt.Fprintln(os.Stderr, "fmp-page: this program runs in a browser: make page builds it, fmp "+
		"serve --page bin/page shows it (docs/browser.md)")
	os.Exit(2)
}

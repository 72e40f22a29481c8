//go:build !js

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "fmp-page: this program runs in a browser: make page builds it, fmp "+
		"serve --page bin/page shows it (docs/browser.md)")
	os.Exit(2)
}

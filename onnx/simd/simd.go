// Package simd lends the pure engine vector kernels in WebAssembly: Go's compiler writes no vector
// instructions there, which a page's client needs to be half as fast as others (docs/browser.md).
//
// The kernels are a second, small module, which this package writes (module, WebAssembly Core
// Specification 2.0, section 5) when the program starts. It imports the memory of Go's module and
// works on Go's slices where they lie. Go calls it by //go:wasmimport, through [Script]'s
// functions, since its memory exists after its imports only. Where the host has no such
// instructions Go's own kernels compute.
//
// A product is rounded before it is added, lane by lane in the order of Go's kernels: no
// instruction is fused or relaxed, so that the bits are theirs.
package simd

import _ "embed"

// Script is the part of the page that starts programs, in JavaScript: its fmpVector adds to a
// program's imports, and returns a function to which the page gives the program before it runs.
//
//go:embed vector.js
var Script []byte

//go:build js || wasip1

package regularfile

// nonblock is 0: WebAssembly has no named pipes of its own.
const nonblock = 0

package simd

import (
	"syscall/js"
	"unsafe"

	"fmp/onnx/internal/kernel"
)

//go:wasmimport fmp panels
//go:noescape
func callPanels(unsafe.Pointer)

//go:wasmimport fmp taps
//go:noescape
func callTaps(unsafe.Pointer)

//go:wasmimport fmp finish
//go:noescape
func callFinish(unsafe.Pointer)

//go:wasmimport fmp pairs
//go:noescape
func callPairs(unsafe.Pointer)

//go:wasmimport fmp deinterleave
//go:noescape
func callDeinterleave(unsafe.Pointer)

// Lend gives the pure engine the kernels, and reports whether the host has their instructions.
func Lend() bool {
	start := js.Global().Get("fmpVectorStart")
	if start.Type() != js.TypeFunction {
		return false
	}
	vectors := module()
	bytes := js.Global().Get("Uint8Array").New(len(vectors))
	js.CopyBytesToJS(bytes, vectors)
	if !start.Invoke(bytes).Bool() {
		return false
	}
	kernel.Lend(&kernel.Kernels{
		Panels:       func(p *kernel.PanelArgs) { callPanels(unsafe.Pointer(p)) },
		Taps:         func(p *kernel.TapArgs) { callTaps(unsafe.Pointer(p)) },
		Finish:       func(p *kernel.FinishArgs) { callFinish(unsafe.Pointer(p)) },
		Pairs:        func(p *kernel.PairArgs) { callPairs(unsafe.Pointer(p)) },
		Deinterleave: func(p *kernel.DeinterleaveArgs) { callDeinterleave(unsafe.Pointer(p)) },
	})
	return true
}

package ort

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"
)

// missing returns the reason why the library of an execution provider, which lies beside the ONNX
// Runtime's, cannot be loaded: it is not there, or a library that it needs is not. It is empty
// where the library can be loaded.
func missing(runtimeLibrary, provider string) string {
	file := filepath.Join(filepath.Dir(runtimeLibrary), "libonnxruntime_providers_"+provider+".so")
	if _, err := os.Stat(file); err != nil {
		return fmt.Sprintf("there is no %s: this build has no such provider", file)
	}
	runtime.LockOSThread() // the error is the thread's
	defer runtime.UnlockOSThread()
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	if h := C.dlopen(name, C.RTLD_LAZY); h != nil {
		C.dlclose(h)
		return ""
	}
	return C.GoString(C.dlerror())
}

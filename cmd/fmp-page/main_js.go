package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"syscall/js"

	"fmp/onnx/simd"
)

// gcPercent trades time for memory, of which a page has little. The heap grows by half over its
// live bytes before it is collected.
const gcPercent = 50

// main lends the page a function, tells it so, and stays: a program that has ended answers no
// calls.
func main() {
	debug.SetGCPercent(gcPercent)
	s := &session{vectors: simd.Lend()}
	js.Global().Set("fmpCall",
		js.FuncOf(func(_ js.Value, args []js.Value) any { return answer(s, args) }))
	js.Global().Call("fmpReady")
	select {}
}

// answer calls a method: its name, parameters (JSON), bytes or null, a function from a path to the
// file's bytes or null, and one that takes progress or null. It returns {json, data}, or {error}.
// Its caller is the worker's script, which gives five arguments always. A panic of Go ends the call
// and not the program.
func answer(s *session, args []js.Value) (out map[string]any) {
	defer func() {
		if r := recover(); r != nil {
			out = map[string]any{"error": fmt.Sprintf(
				"internal error: %v; this is a fault of the program, not of your input", r)}
		}
	}()
	q := request{params: []byte(args[1].String()), progress: func(int, int) {}}
	if !args[2].IsNull() {
		q.data = toGo(args[2])
	}
	if !args[3].IsNull() {
		q.read = func(path string) (data []byte, err error) {
			defer func() {
				if r := recover(); r != nil {
					err = errors.New("the browser cannot read it any more")
				}
			}()
			return toGo(args[3].Invoke(path)), nil
		}
	}
	if !args[4].IsNull() {
		q.progress = func(done, all int) { args[4].Invoke(done, all) }
	}
	result, data, err := s.call(args[0].String(), &q)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	text, err := json.Marshal(result)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	out = map[string]any{"json": string(text)}
	if data != nil {
		// The bytes are copied once into a buffer of JavaScript's own.
		u := js.Global().Get("Uint8Array").New(len(data))
		js.CopyBytesToJS(u, data)
		out["data"] = u
	}
	return out
}

// toGo copies the bytes of a Uint8Array. The copy is Go's: the page may reuse its buffer.
func toGo(u js.Value) []byte {
	data := make([]byte, u.Length())
	js.CopyBytesToGo(data, u)
	return data
}

package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// registryMu guards registry, whose functions are called outside of it.
var (
	registryMu sync.Mutex
	registry   = map[string]func(Options) (Engine, error){}
)

// Register makes an engine known by name. An engine's package does so when it is imported; a second
// engine of the same name is a panic. It may be called from several goroutines.
func Register(name string, open func(Options) (Engine, error)) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if registry[name] != nil {
		panic("engine: two engines are called " + name)
	}
	registry[name] = open
}

// Open makes the engine of a name. The error of an unknown one names those that the program
// imports. The engine is made outside of the lock, as that may take long.
func Open(name string, o Options) (Engine, error) {
	registryMu.Lock()
	open := registry[name]
	names := slices.Sorted(maps.Keys(registry))
	registryMu.Unlock()
	if open == nil {
		return nil, fmt.Errorf("engine %q: this program has %s; for \"ort\" import fmp/onnx/engine/ort",
			name, strings.Join(names, ", "))
	}
	return open(o)
}

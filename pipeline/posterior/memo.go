package posterior

import "sync"

// memo caches values by name. Each is computed once, by the first caller, while other callers wait for it. A
// failed computation is not cached: the next caller tries again.
type memo struct {
	mu      sync.Mutex
	entries map[string]*memoEntry
}

type memoEntry struct {
	mu    sync.Mutex
	done  bool
	value any
}

// once returns the value for key, computed by make if there is none yet.
func once[T any](m *memo, key string, make func() (T, error)) (T, error) {
	m.mu.Lock()
	if m.entries == nil {
		m.entries = map[string]*memoEntry{}
	}
	e := m.entries[key]
	if e == nil {
		e = &memoEntry{}
		m.entries[key] = e
	}
	m.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		return e.value.(T), nil
	}
	v, err := make()
	if err != nil {
		var zero T
		return zero, err
	}
	e.value, e.done = v, true
	return v, nil
}

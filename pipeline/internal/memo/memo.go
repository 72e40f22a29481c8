// Package memo caches values that several callers need.
package memo

import "sync"

// Memo caches values by name. Each is computed once, by the first caller, while other callers wait
// for it. A failed computation is not cached: the next caller tries again. The zero value is empty.
type Memo struct {
	mu      sync.Mutex
	entries map[string]*entry
}

// entry is one value. Its own lock lets callers of other keys go on while it is computed.
type entry struct {
	mu    sync.Mutex
	done  bool
	value any
}

// Once returns the value for key, computed by make if there is none yet. All callers of a key must
// ask for one type T: another panics. make must not ask for its own key, which would wait for
// itself.
func Once[T any](m *Memo, key string, make func() (T, error)) (T, error) {
	m.mu.Lock()
	if m.entries == nil {
		m.entries = map[string]*entry{}
	}
	e := m.entries[key]
	if e == nil {
		e = &entry{}
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

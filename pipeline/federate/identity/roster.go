package identity

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/onnx/regularfile"
)

const (
	// MaxClients is the maximum number of clients in a roster.
	MaxClients = 1_000_000
	// MaxRoster is the maximum size of a roster file: 256 MiB.
	MaxRoster = 256 << 20
	// algorithm is the first field of every line of a roster.
	algorithm = "ed25519"
)

// Roster is the clients that may send to a round, and their public keys. Nothing changes it after
// [ParseRoster], so that goroutines may share it. The private half of decoy is thrown away as it is
// made.
type Roster struct {
	keys  map[string]ed25519.PublicKey
	names []string // sorted
	decoy ed25519.PublicKey
}

// Len returns the number of clients.
func (r *Roster) Len() int { return len(r.names) }

// Names returns the clients' names, sorted. The slice shares memory with the roster. Callers must
// not change it. The order is that of the names' bytes.
func (r *Roster) Names() []string { return r.names }

// Equal reports whether two rosters have the same clients with the same keys. The order of lines
// makes no difference, and comments make none. It costs O(n) for n clients.
func (r *Roster) Equal(other *Roster) bool {
	return maps.EqualFunc(r.keys, other.keys,
		func(a, b ed25519.PublicKey) bool { return bytes.Equal(a, b) })
}

// Verify reports whether signature is a signature of the statement by the client that the statement
// names. For a name that the roster lacks it does the same work, with a key that belongs to nobody:
// the time that it takes does not tell who is in the roster.
// It costs one verification of Ed25519 in any case. Of the statement the client alone chooses the
// key.
func (r *Roster) Verify(s Statement, signature []byte) bool {
	key, known := r.keys[s.Client]
	if !known {
		key = r.decoy
	}
	return Verify(key, s, signature) && known
}

// Key returns the public key of a client; "" if the roster lacks it.
func (r *Roster) Key(client string) string {
	return base64.StdEncoding.EncodeToString(r.keys[client])
}

// line is that of a client in a roster: algorithm, key in base64, and name.
func line(name string, key ed25519.PublicKey) string {
	return algorithm + " " + base64.StdEncoding.EncodeToString(key) + " " + name
}

// LoadRoster reads a roster file. Roster files hold no secret, so that their permissions are not
// checked, unlike those of [Load].
func LoadRoster(path string) (*Roster, error) {
	data, err := regularfile.ReadFile(path, MaxRoster)
	if err != nil {
		return nil, fmt.Errorf("reading roster: %w", err)
	}
	r, err := ParseRoster(data)
	if err != nil {
		return nil, fmt.Errorf("roster %s: %w", path, err)
	}
	return r, nil
}

// ParseRoster parses a roster, which has lines of the form
//
//	ed25519 PUBLIC-KEY-IN-BASE64 NAME
//
// where a name may contain spaces; empty lines and lines that begin with # are ignored. A duplicate
// name or key is an error: one key is one client. Two names of one key would give one owner two
// uploads. A line has less than 64 KiB, the bound of [bufio.Scanner]. It costs O(n log n) for n
// clients.
func ParseRoster(data []byte) (*Roster, error) {
	if len(data) > MaxRoster {
		return nil, fmt.Errorf("more than %d bytes", MaxRoster)
	}
	r := &Roster{keys: map[string]ed25519.PublicKey{}}
	held := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		kind, rest, _ := strings.Cut(text, " ")
		encoded, name, _ := strings.Cut(strings.TrimSpace(rest), " ")
		name = strings.TrimSpace(name)
		if kind != algorithm {
			return nil,
				fmt.Errorf("line %d begins with %.40q; want lines of: %s KEY NAME, as fmp keys "+
					"writes them", n, kind, algorithm)
		}
		key, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("line %d: the key is no base64 of %d bytes", n,
				ed25519.PublicKeySize)
		}
		if err := CheckName(name); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if r.keys[name] != nil {
			return nil, fmt.Errorf("line %d: client %q stands there already; give each "+
				"client one key", n, name)
		}
		if other, ok := held[string(key)]; ok {
			return nil,
				fmt.Errorf("line %d: clients %q and %q have one key; give each client one "+
					"of its own", n, other, name)
		}
		if len(r.names) == MaxClients {
			return nil, fmt.Errorf("line %d: more than %d clients", n, MaxClients)
		}
		r.keys[name], held[string(key)] = key, name
		r.names = append(r.names, name)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", len(r.names)+1, err)
	}
	if len(r.names) == 0 {
		return nil, fmt.Errorf("no clients; fmp keys NAME... makes keys and a roster")
	}
	slices.Sort(r.names)
	decoy, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	r.decoy = decoy
	return r, nil
}

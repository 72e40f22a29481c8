package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/identity"
)

// madeKeys is the output of fmp keys.
type madeKeys struct {
	Roster  string            `json:"roster"`
	Clients int               `json:"clients"` // in the roster now
	Keys    map[string]string `json:"keys"`    // file of each client's new key
}

// newKeysCommand declares fmp keys. The roster is written last; where that fails the keys are
// removed again. Paths of the output are as the caller gave them, relative to the working folder
// where they are so.
func newKeysCommand() *cobra.Command {
	var dir, roster string
	cmd := &cobra.Command{
		Use:   "keys NAME...",
		Short: "Make keys for the clients of a federation, and the roster that a round lets in",
		Long: `Make an Ed25519 key for each client named, in a file of its own that its owner alone can read, and
add its public half to the roster: the file of clients that a round lets in. Give each client its
key file over a safe channel, and delete it here. Better still, let each client make its own
(fmp-edge key): then no key leaves its machine, and the line that fmp-edge key prints is added to
the roster as it is.

A roster is text, one client a line: ed25519 PUBLIC-KEY NAME. To shut a client out, remove its line:
a running fmp serve reads the file again within seconds. Its upload stays in (fmp withdraw takes it
out).`,
		Example: `  fmp keys ward-1 ward-2 ward-3 --dir keys
  fmp keys shop-17 --dir keys --roster roster.txt`,
		Args: rangeArgs(1, 0, "NAME"),
	}
	cmd.Flags().StringVar(&dir, "dir", "keys", "`FOLDER` for the key files")
	cmd.Flags().StringVar(&roster, "roster", "roster.txt",
		"`FILE` of the roster; clients are added to one that is there")
	jsonFlag(cmd, "print what was made as JSON")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		res, err := makeKeys(dir, roster, names)
		if err != nil {
			return err
		}
		return tell(cmd, res, func(b *strings.Builder) {
			for _, name := range names {
				fmt.Fprintf(b, "key:    %s (%s)\n", res.Keys[name], name)
			}
			fmt.Fprintf(b, "roster: %s (%d clients)\n", roster, res.Clients)
		})
	}
	return cmd
}

// makeKeys writes a key for each name, and the roster with their public halves besides. The folder
// of the roster is locked meanwhile: of two processes each would leave out the other's clients. All
// names, old and new, are parsed as one roster before any key is written. A name that is there
// already is therefore an error that leaves no file. Lines of the roster, comments among them, stay
// as they are, and clients are added at its end. The cost is one pass over the roster, which is
// read within identity.MaxRoster.
func makeKeys(dir, roster string, names []string) (res madeKeys, err error) {
	for _, name := range names {
		if outputs.Same(roster, keyFile(dir, name)) {
			return res, usageErrorf("--roster %s is the key file of %s too, which it would be "+
				"written over: give another name", roster, name)
		}
	}
	if err := os.MkdirAll(filepath.Dir(roster), 0o755); err != nil {
		return res, usageError(err)
	}
	lock, err := atomicfile.Take(filepath.Dir(roster))
	if err != nil {
		return res, usageError(err)
	}
	defer lock.Close()
	text, err := regularfile.ReadFile(roster, identity.MaxRoster)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return res, usageError(err)
	}
	// A last line without an end would run into the first client that is added.
	if len(text) > 0 {
		text = []byte(strings.TrimRight(string(text), "\n") + "\n")
	}
	keys := make([]*identity.Key, len(names))
	for i, name := range names {
		if keys[i], err = identity.New(name); err != nil {
			return res, usageError(err)
		}
		text = append(text, keys[i].Line()+"\n"...)
	}
	all, err := identity.ParseRoster(text)
	if err != nil {
		return res, usageError(fmt.Errorf("roster %s with the new clients: %w", roster, err))
	}
	res = madeKeys{Roster: roster, Clients: all.Len(), Keys: map[string]string{}}
	// A key in no roster would be in the way of the same command. res.Keys has only files that this
	// call made: a key that was there is refused by Save, and stays.
	defer func() {
		if err != nil {
			for _, path := range res.Keys {
				os.Remove(path)
			}
		}
	}()
	for i, name := range names {
		path := keyFile(dir, name)
		if err := keys[i].Save(path); err != nil {
			return res, usageError(err)
		}
		res.Keys[name] = path
	}
	// The error, if any, is seen by the deferred removal above.
	return res, atomicfile.WriteBytes(roster, text)
}

// keyFile is where a client's key goes. A name may hold characters that a file's name may not.
// Escaping is that of a URL's path segment (RFC 3986, section 2.1): a slash becomes %2F, so that
// every key lies in dir.
func keyFile(dir, name string) string { return filepath.Join(dir, url.PathEscape(name)+".key") }

package privacy

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// SealSuffix ends the name of the file beside a ledger with its chain's key and end.
const SealSuffix = ".seal"

// maxSeal bounds that file.
const maxSeal = 4 << 10

// chain makes edits of a ledger visible: each line carries HMAC-SHA256, under a key beside the
// ledger, of all bytes before it and of the line itself. Lines from before there was a key have
// none, and must come first; the first line of the chain covers them.
// It finds a change of the ledger alone. Anyone who can write both files can make both anew.
type chain struct {
	Key []byte `json:"key"`
	// Lines is the number of lines of the chain that the ledger had when it was last read, and Last
	// the digest of the last of these.
	Lines int    `json:"lines"`
	Last  string `json:"last,omitempty"`

	unsaved bool   // the key is new, and in no file
	next    string // digest of the line that is being written
}

// openChain reads the seal of a ledger, new where neither it nor a chain is there, and holds the
// ledger's lines against it. A new seal is written where there are lines, which it covers.
// The first of its places counts. A seal that is in another alone is moved there, once the lines
// follow from it. The caller holds the ledger's lock.
func openChain(places []string, lines []byte) (*chain, error) {
	c, path := &chain{}, places[0]
	if i := slices.IndexFunc(places, there); i > 0 {
		path = places[i]
	}
	data, err := regularfile.ReadFile(path, maxSeal)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Key, c.unsaved = make([]byte, sha256.Size), true
		rand.Read(c.Key) // never fails
	case err != nil:
		return nil, fmt.Errorf("its seal: %w", err)
	default:
		if err := json.Unmarshal(data, c); err != nil || len(c.Key) != sha256.Size || c.Lines < 0 {
			return nil, fmt.Errorf("its seal %s is damaged (%v): bring it back, or move both "+
				"files away and give the budget that was spent up for lost", path, err)
		}
	}
	n, last, err := c.follow(path, lines)
	if err != nil && c.unsaved {
		return nil, fmt.Errorf("its seal %s is not there: bring it back; where an earlier program "+
			"put it beside a symbolic link, give --ledger that link once (%w)", path, err)
	}
	if err != nil {
		return nil, err
	}
	// The ledger may be ahead of its seal, where a program was stopped between the two.
	if moved := path != places[0]; moved || c.unsaved && len(lines) > 0 || n > c.Lines {
		c.Lines, c.Last = n, last
		if err = c.save(places[0]); err == nil && moved {
			_ = os.Remove(path) // one that stays is not read again
		}
	}
	return c, err
}

// save writes the seal. It replaces the file as a whole, readable by its owner alone.
// A seal that could not be saved is an error of its caller.
func (c *chain) save(path string) error {
	data, err := json.Marshal(c)
	if err == nil {
		err = atomicfile.WritePrivate(path, append(data, '\n'))
	}
	c.unsaved = err != nil
	return err
}

// follow returns the number of lines of the chain in a ledger, and the digest of the last. A line
// that does not follow is an error, as are fewer lines than the seal counts. It hashes every byte
// of the ledger once. Lines without a digest at the beginning are of before there was a key.
// Comparisons of digests take constant time (hmac.Equal).
func (c *chain) follow(path string, lines []byte) (n int, last string, err error) {
	sum := sha256.New()
	for i, line := range bytes.SplitAfter(lines, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			sum.Write(line)
			continue
		}
		var s Spending
		if err := json.Unmarshal(line, &s); err != nil {
			return c.Lines, c.Last, nil // parseLedger says so
		}
		if s.Chain == "" && n == 0 {
			sum.Write(line)
			continue
		}
		if !hmac.Equal([]byte(c.digest(sum.Sum(nil), s)), []byte(s.Chain)) {
			return 0, "", fmt.Errorf("line %d does not follow from those before it: "+
				"it, or one of these, "+
				"was changed, or %s is of another ledger; bring the files back", i+1, path)
		}
		sum.Write(line)
		if n, last = n+1, s.Chain; n == c.Lines && last != c.Last {
			return 0, "", fmt.Errorf("line %d is not the one that %s has seen: "+
				"bring the files back", i+1, path)
		}
	}
	if n < c.Lines {
		return 0, "", fmt.Errorf(
			"%d of its lines are gone, by %s: bring them back; what was spent cannot be told",
			c.Lines-n, path)
	}
	return n, last, nil
}

// of returns the digest of a line behind others, which follows as the next.
// It costs a hash of the whole ledger. count follows once the line is on the disk.
func (c *chain) of(lines []byte, s Spending) string {
	sum := sha256.Sum256(lines)
	c.next = c.digest(sum[:], s)
	return c.next
}

// count makes the seal count the next line.
func (c *chain) count(path string) error {
	c.Lines, c.Last = c.Lines+1, c.next
	return c.save(path)
}

// digest returns the keyed digest of a line, by the sha256 of all bytes before it. The line is
// hashed as JSON without its own digest. Thereby each digest binds all that stands before it.
// With H the SHA-256 of all before, it is HMAC-SHA256(key, H || JSON) (RFC 2104), in hexadecimal.
func (c *chain) digest(before []byte, s Spending) string {
	s.Chain = ""
	line, err := json.Marshal(s)
	if err != nil {
		return "" // a number that JSON has not; no line has it
	}
	h := hmac.New(sha256.New, c.Key)
	h.Write(before)
	h.Write(line)
	return hex.EncodeToString(h.Sum(nil))
}

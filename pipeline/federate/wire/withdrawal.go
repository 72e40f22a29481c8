package wire

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"fmp/pipeline/federate/identity"
)

const (
	// MaxNotice is the maximum size of a notice: 4 MiB, some 25,000 versions.
	MaxNotice = 4 << 20
	// MaxHeld is the maximum number of versions that the receipt of a withdrawal lists.
	MaxHeld = 200
)

// ByClient and ByOperator say who withdrew an upload.
const (
	ByClient   = "client"
	ByOperator = "operator"
)

// Any stands, in a request to withdraw, in place of the digest of the client's upload.
const Any = "*"

// VersionRef names a version of a round's classifier by its file.
type VersionRef struct {
	Version int    `json:"version"`
	SHA256  string `json:"sha256"`
}

// Withdrawal is the receipt of a withdrawal: the server certifies that it deleted an upload, and
// names the versions that held it and the consequences that it cannot undo.
type Withdrawal struct {
	Round  uint64 `json:"round"`
	Client string `json:"client"`
	Graph  string `json:"graph"`
	// Upload is the digest of the message that was withdrawn.
	Upload string    `json:"upload"`
	Time   time.Time `json:"time"`
	// By is who withdrew it: "client" or "operator".
	By string `json:"by"`
	// Held are the versions of the classifier that held an upload of this client, at most
	// [MaxHeld], the latest ones; HeldVersions is their number.
	Held         []VersionRef `json:"held"`
	HeldVersions int          `json:"held_versions"`
	// Without is the version that takes their place; nil while it is not made.
	Without *VersionRef `json:"without"`
	// Remains are the consequences that the server cannot undo, for people.
	Remains []string `json:"remains"`
	// Server is the public key (base64) that verifies Signature (base64), which covers all other
	// fields.
	Server    string `json:"server"`
	Signature string `json:"signature"`
}

// Remains returns the consequences that no server can undo after a withdrawal, for people. held is
// the number of versions that held the upload: copies of them exist only where it is above 0.
func Remains(held int) []string {
	out := []string{"the server's log and its list of each version's members name the " +
		"client, the time and the upload's digest",
		"copies that others made of the server's state, backups among them, and freed blocks of " +
			"its disk may hold the upload until they are overwritten"}
	if held > 0 {
		out = append(out, "copies of the versions in held that were handed out before "+
			"still hold the upload; the round's notice names them",
			"predictions that were made with these versions, and figures derived from them, stay "+
				"as they are")
	}
	return out
}

// statement is that of a server's key about all of a receipt but its signature. The receiver is a
// copy, so that clearing the signature changes nothing of the caller's. The server's key is part of
// the content too.
func (w Withdrawal) statement(server string) identity.Statement {
	w.Signature = ""
	return identity.Statement{Purpose: identity.Withdrawn, Server: server, Round: w.Round,
		Client: w.Client, Graph: w.Graph, Content: Content(w)}
}

// statement is that of a server's key about all of a notice but its signature.
func (n Notice) statement(server string) identity.Statement {
	n.Signature = ""
	return identity.Statement{Purpose: identity.Noticed, Server: server, Round: n.Round,
		Graph: n.Graph, Content: Content(n)}
}

// Content is the SHA-256 (hexadecimal) of a value as JSON: of nothing for one that has no JSON,
// such as a year of five digits. Fields of a struct are in the order of its declaration, which is
// therefore part of the signed form.
func Content(v any) string {
	data, _ := json.Marshal(v)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// verify reports whether a statement has a server's signature.
// Key and signature are base64; a key of another length than Ed25519's verifies nothing.
func verify(server, signature string, s identity.Statement) bool {
	key, err := base64.StdEncoding.DecodeString(server)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return false
	}
	b, err := base64.StdEncoding.DecodeString(signature)
	return err == nil && identity.Verify(key, s, b)
}

// Sign sets the server's key and signature.
func (w *Withdrawal) Sign(k *identity.Key) {
	w.Server = k.PublicText()
	w.Signature = base64.StdEncoding.EncodeToString(k.Sign(w.statement(w.Server)))
}

// Verify returns an error unless the receipt is signed with the server's given key (base64).
func (w *Withdrawal) Verify(server string) error {
	if w.Server != server || !verify(server, w.Signature, w.statement(server)) {
		return fmt.Errorf("the receipt of the withdrawal of %.128q from round %d is not "+
			"signed by the server's key %.60s", w.Client, w.Round, server)
	}
	return nil
}

// IsWithdrawal reports whether JSON is meant as the receipt of a withdrawal, and not of an upload.
// It looks at fields that the receipt of an upload lacks, and verifies nothing. It chooses which of
// two forms a file is read as, and reading it verifies.
func IsWithdrawal(data []byte) bool {
	var some struct{ By, Held, Remains json.RawMessage }
	return json.Unmarshal(data, &some) == nil && (some.By != nil || some.Held != nil ||
		some.Remains != nil)
}

// ReadWithdrawal parses the receipt of a withdrawal as a server wrote it, without other fields, and
// verifies its signature by the server's given key (base64). After an error of the signature the
// receipt is returned beside it, and proves nothing.
func ReadWithdrawal(data []byte, server string) (*Withdrawal, error) {
	w := &Withdrawal{}
	if err := Only(data, w); err != nil {
		return nil, fmt.Errorf("not a receipt of a withdrawal as a server writes it: %w", err)
	}
	return w, w.Verify(server)
}

// Withdraw returns the headers of the request by which a client withdraws whatever it has sent to
// the round. [Any] stands for the digest, as a client may have replaced its upload or lost it.
func (d *Description) Withdraw(key *identity.Key) map[string]string {
	return map[string]string{"If-Match": Any,
		"Authorization": Authorization(key.Sign(d.statement(identity.Withdraw, key, Any)))}
}

// WithdrawFor returns the headers of the request by which the server's operator withdraws the
// upload of a client, signed with the server's key.
func (d *Description) WithdrawFor(server *identity.Key, client string) map[string]string {
	s := d.statement(identity.WithdrawFor, server, Any)
	s.Client = client
	return map[string]string{"If-Match": Any, "Authorization": Authorization(server.Sign(s))}
}

// Gone returns an error unless a receipt is the round's server's for the withdrawal of a client.
func (d *Description) Gone(w *Withdrawal, client string) error {
	if w.Round != d.Round || w.Client != client || w.Graph != d.Graph {
		return fmt.Errorf("the receipt is of the withdrawal of %.128q from round %d with "+
			"client graph %.80q; asked was that of %.128q from round %d with %s", w.Client, w.Round,
			w.Graph, client, d.Round, d.Graph)
	}
	return w.Verify(d.ServerKey)
}

// Printed returns the receipt of a withdrawal for people, in lines. The receipt must be verified
// before. Its texts are another machine's, and hold no control characters here.
func Printed(w *Withdrawal) string {
	out := fmt.Sprintf(
		"withdrawn: the upload of %q from round %d, at %s, by the %s\nupload:    sha256 %s\n",
		w.Client, w.Round, w.Time.Format(time.RFC3339), Printable(w.By), Printable(w.Upload))
	if w.HeldVersions > 0 {
		out += fmt.Sprintf("held by:   %d versions, which are handed out no more\n", w.HeldVersions)
		by := "none yet; the next request to withdraw it says which"
		if w.Without != nil {
			by = fmt.Sprintf("version %d, sha256 %s", w.Without.Version, Printable(w.Without.SHA256))
		}
		out += "instead:   " + by + "\n"
	} else {
		out += "held by:   no version\n"
	}
	for _, text := range w.Remains {
		out += "remains:   " + Printable(text) + "\n"
	}
	return out
}

// Notice says which versions of a round's classifier are superseded because they hold an upload
// that was withdrawn. It names no client, and travels beside a classifier, in a file of its name
// with .notice.
type Notice struct {
	Round uint64    `json:"round"`
	Graph string    `json:"graph"`
	Time  time.Time `json:"time"`
	// Superseded are the versions that nobody should use any more, Latest the one to use; nil:
	// there is none.
	Superseded []VersionRef `json:"superseded"`
	Latest     *VersionRef  `json:"latest"`
	// Server is the public key (base64) that verifies Signature (base64), which covers all other
	// fields.
	Server    string `json:"server"`
	Signature string `json:"signature"`
}

// ErrSuperseded is wrapped by the error for a classifier that a notice names.
var ErrSuperseded = errors.New("the classifier is superseded")

// Sign sets the server's key and signature.
func (n *Notice) Sign(k *identity.Key) {
	n.Server = k.PublicText()
	n.Signature = base64.StdEncoding.EncodeToString(k.Sign(n.statement(n.Server)))
}

// ReadNotice parses a notice and verifies its signature: by the given key of the server (base64),
// or, if that is empty, by the key that the notice states. A notice by its own key proves that one
// server made it, not which: a caller compares n.Server with the classifier's.
func ReadNotice(data []byte, server string) (*Notice, error) {
	if len(data) > MaxNotice {
		return nil, fmt.Errorf("notice: more than %d bytes", MaxNotice)
	}
	n := &Notice{}
	if err := Only(data, n); err != nil {
		return nil, fmt.Errorf("notice: not what %s answers: %w", NoticePath(0), err)
	}
	server = cmp.Or(server, n.Server)
	if n.Server != server || !verify(server, n.Signature, n.statement(server)) {
		return nil, fmt.Errorf("notice: it is not signed by the server's key %.60q", server)
	}
	return n, nil
}

// Heed returns [ErrSuperseded] if the notice names a classifier of a SHA-256.
// It compares SHA-256 in hexadecimal, in either case of letters. It costs O(versions).
func (n *Notice) Heed(digest string) error {
	for _, v := range n.Superseded {
		if !strings.EqualFold(v.SHA256, digest) {
			continue
		}
		by := "no version has taken its place yet"
		if n.Latest != nil {
			by = fmt.Sprintf("take version %d, sha256 %.64s", n.Latest.Version, n.Latest.SHA256)
		}
		return fmt.Errorf("%w: it is version %d of round %d and holds an upload that was "+
			"withdrawn, by the notice of %s; %s", ErrSuperseded, v.Version, n.Round,
			n.Time.UTC().Format(time.RFC3339), by)
	}
	return nil
}

// NoticePath returns the path of a round's notice.
func NoticePath(round uint64) string { return RoundPath(round) + "/notice" }
